/** What was spent today, by host, and how often each request was paid of late. */

import { REPEAT_S, type Spent } from "./decision.js";

const DAY_S = 86_400;

/** A payment, as the budgets count it. */
export interface Claim {
  readonly host: string;
  /** What tells the same request again. */
  readonly request: string;
  /** Unix seconds. */
  readonly at: number;
  readonly microUsd: bigint;
}

/** Sums by day (UTC) and host: a look at them takes the same time after any number of claims. */
export class Spending {
  readonly #claims = new Map<object | string, Claim>();
  readonly #sums = new Map<string, bigint>();
  readonly #times = new Map<string, number[]>();
  #today = 0;

  /** Counts a claim under a name of its own. */
  add(name: object | string, claim: Claim): void {
    this.#forget(dayOf(claim.at));
    this.#claims.set(name, claim);
    this.#count(claim, claim.microUsd);
    const times = this.#times.get(claim.request) ?? [];
    this.#times.set(claim.request, [...times.filter((at) => at > claim.at - REPEAT_S), claim.at]);
  }

  /** Counts a claim no longer. */
  remove(name: object | string): void {
    const claim = this.#claims.get(name);
    if (claim === undefined) return;
    this.#claims.delete(name);
    this.#count(claim, -claim.microUsd);
    const times = this.#times.get(claim.request) ?? [];
    const index = times.indexOf(claim.at);
    this.#times.set(claim.request, times.toSpliced(index, index === -1 ? 0 : 1));
  }

  /** What counts at `now` (unix seconds) for a payment to `host` for `request`. */
  at(now: number, host: string, request: string): Spent {
    const times = this.#times.get(request) ?? [];
    return {
      hostDay: this.#since(dayOf(now), ` ${host}`),
      day: this.#since(dayOf(now), ""),
      repeats: times.filter((at) => at > now - REPEAT_S).length,
    };
  }

  /** What was spent on a day and after it: the clock may have been set back. */
  #since(first: number, host: string): bigint {
    let sum = 0n;
    for (let day = first; day <= Math.max(first, this.#today); day += 1) {
      sum += this.#sums.get(`${day}${host}`) ?? 0n;
    }
    return sum;
  }

  #count({ at, host }: Claim, amount: bigint): void {
    const day = dayOf(at);
    for (const key of [`${day}`, `${day} ${host}`]) {
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

function dayOf(at: number): number {
  return Math.floor(at / DAY_S);
}
