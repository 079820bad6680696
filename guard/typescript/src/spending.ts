/**
 * What each account (a payer and a token on a network) spent today, by host, and how often it paid
 * each request in the last ten minutes.
 */

import { REPEAT_S, type Spent } from "./decision.js";

const DAY_S = 86_400;

/** A payment, as the budgets count it. */
export interface Claim {
  /** Whose money it is: `accountOf` makes it. */
  readonly account: string;
  readonly host: string;
  /** What tells the same request again. */
  readonly request: string;
  /** Unix seconds. */
  readonly at: number;
  readonly microUsd: bigint;
}

/** What has budgets of its own: a payer and a token on a network. */
export function accountOf(payer: string, network: string, asset: string): string {
  return `${payer} ${network} ${asset}`;
}

/**
 * Sums by day (UTC), account and host: a look at them takes the same time after any number of
 * claims. Payments that are being signed count at any time, however long that takes.
 */
export class Spending {
  readonly #claims = new Map<object | string, Claim>();
  readonly #sums = new Map<string, bigint>();
  readonly #times = new Map<string, number[]>();
  readonly #reserved = new Set<Claim>();
  #today = 0;

  /** Counts a payment that is being signed, until it is released. */
  reserve(claim: Claim): void {
    this.#reserved.add(claim);
  }

  release(claim: Claim): void {
    this.#reserved.delete(claim);
  }

  /** Counts a claim under a name of its own. */
  add(name: object | string, claim: Claim): void {
    this.#forget(dayOf(claim.at));
    this.#claims.set(name, claim);
    this.#count(claim, claim.microUsd);
    const key = repeatKey(claim);
    const times = this.#times.get(key) ?? [];
    this.#times.set(key, [...times.filter((at) => at > claim.at - REPEAT_S), claim.at]);
  }

  /** Counts a claim no longer. */
  remove(name: object | string): void {
    const claim = this.#claims.get(name);
    if (claim === undefined) return;
    this.#claims.delete(name);
    this.#count(claim, -claim.microUsd);
    const times = this.#times.get(repeatKey(claim)) ?? [];
    const index = times.indexOf(claim.at);
    this.#times.set(repeatKey(claim), times.toSpliced(index, index === -1 ? 0 : 1));
  }

  /** What counts at `now` (unix seconds) for a payment of an account to a host for a request. */
  at(now: number, payment: Pick<Claim, "account" | "host" | "request">): Spent {
    const { account, host, request } = payment;
    const times = this.#times.get(repeatKey(payment)) ?? [];
    const reserved = [...this.#reserved].filter((claim) => claim.account === account);
    const atHost = reserved.filter((claim) => claim.host === host);
    const same = reserved.filter((claim) => claim.request === request);
    return {
      hostDay: this.#since(dayOf(now), ` ${account} ${host}`) + sumOf(atHost),
      day: this.#since(dayOf(now), ` ${account}`) + sumOf(reserved),
      repeats: times.filter((at) => at > now - REPEAT_S).length + same.length,
    };
  }

  /** What was spent on a day and after it: the clock may have been set back. */
  #since(first: number, key: string): bigint {
    let sum = 0n;
    for (let day = first; day <= Math.max(first, this.#today); day += 1) {
      sum += this.#sums.get(`${day}${key}`) ?? 0n;
    }
    return sum;
  }

  #count({ account, at, host }: Claim, amount: bigint): void {
    const day = dayOf(at);
    for (const key of [`${day} ${account}`, `${day} ${account} ${host}`]) {
      this.#sums.set(key, (this.#sums.get(key) ?? 0n) + amount);
    }
  }

  /** Forgets what counts no more when a day begins; yesterday's last minutes may be repeated. */
  #forget(today: number): void {
    if (today <= this.#today) return;
    this.#today = today;
    for (const [name, { at }] of this.#claims) {
      if (dayOf(at) < today - 1) this.#claims.delete(name);
    }
    for (const [request, times] of this.#times) {
      if (times.every((at) => dayOf(at) < today - 1)) this.#times.delete(request);
    }
    for (const key of this.#sums.keys()) {
      if (Number.parseInt(key, 10) < today - 1) this.#sums.delete(key);
    }
  }
}

function repeatKey({ account, request }: Pick<Claim, "account" | "request">): string {
  return `${account} ${request}`;
}

function sumOf(claims: readonly Claim[]): bigint {
  return claims.reduce((sum, { microUsd }) => sum + microUsd, 0n);
}

function dayOf(at: number): number {
  return Math.floor(at / DAY_S);
}
