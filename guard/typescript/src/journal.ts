/**
 * Journal: every payment from its reservation on, budgets and refusals.
 *
 * One SQLite file (or memory, or another store) for all threads and processes of a user, in
 * TypeScript and Python. Each transition of a payment is one transaction; a reservation checks the
 * earlier payments of its purchase and the budgets in the transaction that writes the row.
 */

import { randomBytes } from "node:crypto";
import type { Code } from "./codes.js";
import { overBudget, refuse, type Refuse, type Spent } from "./decision.js";
import {
  createTables,
  isAlive,
  isConstraint,
  JournalError,
  JournalFile,
  newHandle,
  readPayment,
  type Store,
  thisProcess,
} from "./journal-file.js";
import type { Terms } from "./offer.js";
import { type Event, type Payment, type State, TRANSITIONS } from "./payment-state.js";
import type { Policy } from "./policy.js";
import { type Authorization } from "./authorization.js";
import { CLOCK_SLACK_S } from "./signed.js";

const DAY_S = 86_400;
const BUCKET_S = 300;
const KEEP_S = 90 * DAY_S;
const KEEP_REFUSALS_S = 30 * DAY_S;
const MAX_REFUSALS = 100_000;
const UNFINISHED: readonly State[] = ["signed", "in-flight", "open", "paid-unanswered"];

/** A purchase: the request, identified by keys that do not contain its query or body. */
export interface Purchase {
  readonly account: string;
  readonly wallets: readonly string[];
  readonly session: string;
  readonly key: string;
  readonly host: string;
  readonly resource: string;
  readonly urlDigest: string;
}

/** Where the exposure of a payment counts. `at` is when it was reserved (unix seconds). */
export interface Exposure {
  readonly account: string;
  readonly network: string;
  readonly asset: string;
  readonly host: string;
  readonly session: string;
  readonly at: number;
}

/** A decision other than allow, as the journal records it. */
export interface Refusal {
  readonly at: number;
  readonly account: string;
  readonly host: string;
  readonly resource: string;
  readonly decision: "ask" | "refuse";
  readonly code: Code;
  readonly reason: string;
  readonly network: string | null;
  readonly payTo: string | null;
  readonly amount: string | null;
}

/** Other columns that a transition sets. */
export interface Changes {
  readonly nonce?: string;
  readonly validBefore?: number;
  readonly validHeight?: number | null;
  readonly evidence?: string | null;
  readonly payload?: string;
  readonly paymentId?: string | null;
  readonly status?: number | null;
  readonly settlement?: string;
  /** Micro-dollars that the chain shows as settled, or that were signed. */
  readonly settled?: bigint;
}

const COLUMNS: Readonly<Record<keyof Omit<Changes, "settled">, string>> = {
  nonce: "nonce",
  validBefore: "valid_before",
  validHeight: "valid_height",
  evidence: "evidence",
  payload: "payload",
  paymentId: "payment_id",
  status: "status",
  settlement: "settlement",
};

const SUM = `SELECT coalesce(sum(spent), 0) FROM budgets
  WHERE account = ? AND network = ? AND asset = ? AND scope = ? AND bucket >= ?`;
// One statement: every decision needs all the sums. Node.js 22.13 cannot bind values to `?1`.
const SPENT = `SELECT (${SUM}) AS lifetime, (${SUM}) AS session, (${SUM}) AS day, (${SUM}) AS host,
    coalesce(sum(exposure), 0) AS lost, count(*) AS losses FROM payments
  WHERE host = ? AND changed_at > ? AND account = ?
    AND state IN ('paid-unanswered', 'lapsed', 'written-off')`;

export class Journal {
  readonly file: Store;
  readonly #maxRefusals: number;
  #prunedDay = 0;

  /**
   * Opens a file, `MEMORY`, or a store of yours. Of the refusals, the newest `maxRefusals` are
   * kept. Throws JournalError.
   */
  constructor(where: string | Store, isDurable = false, maxRefusals = MAX_REFUSALS) {
    this.#maxRefusals = maxRefusals;
    if (typeof where === "string") {
      this.file = new JournalFile(where, isDurable);
      return;
    }
    createTables(where);
    this.file = where;
  }

  /**
   * Sets the exposure of a payment aside before it is signed by `payer`. Returns the names of the
   * reserved payment, the refusal if it exceeds a budget, or null if an earlier payment of the same purchase
   * is unfinished. Throws JournalError.
   */
  reserve(
    purchase: Purchase,
    terms: Terms,
    payer: string,
    policy: Policy,
    now: number,
  ): Pick<Payment, "id" | "handle"> | Refuse | null {
    const where = exposureOf(purchase, terms, now);
    return this.file.transaction(() => {
      if (this.#prunedDay !== Math.floor(now / DAY_S)) {
        this.#prune(now);
        this.#prunedDay = Math.floor(now / DAY_S);
      }
      if (this.unfinished(purchase) !== null) return null;
      if (terms.method === "channel" && this.#isChannelBusy(terms, payer)) {
        const reason = "A call through the same payment channel has no answer yet.";
        return refuse("payment-unresolved", reason);
      }
      let refusal = overBudget(terms.exposure, this.spent(where), policy);
      if (refusal !== null) {
        this.#releaseDead();
        refusal = overBudget(terms.exposure, this.spent(where), policy);
      }
      if (refusal !== null) return refusal;
      const handle = newHandle();
      const [row] = this.file.all(
        `INSERT INTO payments (handle, account, purchase, session, owner, state, at, changed_at, host,
           resource, url_digest, scheme, method, network, asset, pay_to, amount, exposure, payer,
           valid_before, replaces)
         VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
           (SELECT max(id) FROM payments WHERE purchase = ? AND account = ? AND state = 'written-off'
            AND NOT EXISTS (SELECT 1 FROM payments AS later
              WHERE later.purchase = payments.purchase AND later.replaces = payments.id)))
         RETURNING id`,
        ...[handle, purchase.account, purchase.key, purchase.session, thisProcess(), now, now],
        ...[purchase.host, purchase.resource, purchase.urlDigest, terms.scheme, terms.method],
        ...[terms.network, terms.asset, terms.payTo, String(terms.amount), terms.exposure, payer],
        ...[now + terms.timeout + CLOCK_SLACK_S, purchase.key, purchase.account],
      );
      this.addExposure(where, terms.exposure);
      return { id: Number(row!["id"]), handle };
    });
  }

  /**
   * Records the signed payment before it leaves; `payload` is the value of its header. Throws
   * JournalError if the reservation is gone, or if the same authorization was recorded before: then
   * the payment must not leave.
   */
  sign(id: number, signed: Authorization, payload: string, now: number, found: Changes = {}): void {
    const time = signed.validBefore > 0 ? { validBefore: signed.validBefore } : {};
    let isChanged = false;
    try {
      // The same voucher again, after its call has ended, takes nothing more.
      const isAgain = signed.method === "channel" && this.#isSigned(signed);
      const nonce = isAgain ? `${signed.nonce}#${id}` : signed.nonce;
      const values = { nonce, payload, ...time, ...found };
      isChanged = this.change(id, "signed", now, "reserved", values);
    } catch (error) {
      if (!isConstraint(error)) throw error;
      throw new JournalError("This authorization was signed before.", { cause: error });
    }
    if (!isChanged) {
      throw new JournalError("The payment has no reservation any more; it is not sent.");
    }
  }

  /**
   * Applies an event to a payment, in one transaction. `expected` is the state that was read: nothing
   * changes if the row has another one. Returns false if the table of states has no transition.
   */
  change(
    id: number,
    event: Event,
    now: number,
    expected: State | null = null,
    { settled, ...values }: Changes = {},
  ): boolean {
    return this.file.transaction(() => {
      const [row] = this.file.all("SELECT state, exposure, found_at FROM payments WHERE id = ?", id);
      const state = row?.["state"] as State | undefined;
      if (state === undefined || (expected !== null && state !== expected)) return false;
      const transition = TRANSITIONS[state][event];
      if (transition === undefined) return false;
      const counted = BigInt(row!["exposure"]!);
      let exposure = transition.release === true ? 0n : counted;
      // A voucher without a deposit exposes less than was reserved.
      const isSettled = settled !== undefined && (transition.settle === true || event === "signed");
      if (isSettled && settled < exposure) exposure = settled;
      if (exposure !== counted) this.addExposure(this.payment(id)!, exposure - counted);
      if (transition.to === null) {
        this.file.all("DELETE FROM payments WHERE id = ?", id);
        return true;
      }
      const columns: Record<string, string | number | bigint | null> = {
        state: transition.to,
        exposure,
      };
      for (const [name, value] of Object.entries(values)) {
        columns[COLUMNS[name as keyof typeof COLUMNS]] = value;
      }
      if (transition.to !== state) columns["changed_at"] = now;
      if (transition.dropPayload === true) columns["payload"] = null;
      const isFound = transition.to === "paid-unanswered" && row!["found_at"] === null;
      if (isFound) columns["found_at"] = now;
      if (event === "send") columns["owner"] = thisProcess();
      const set = Object.keys(columns).map((name) => `${name} = ?`);
      const sql = `UPDATE payments SET ${set.join(", ")} WHERE id = ?`;
      this.file.all(sql, ...Object.values(columns), id);
      return true;
    });
  }

  /**
   * The first unfinished payment of a purchase. A reservation of a process that died does not count:
   * its payment was not recorded and did not leave.
   */
  unfinished({ key, account, wallets }: Purchase): Payment | null {
    const rows = this.#select(
      `purchase = ? AND (account = ? OR payer IN (SELECT value FROM json_each(?)))
       AND state IN ('reserved', 'signed', 'in-flight', 'open', 'paid-unanswered')`,
      ...[key, account, JSON.stringify(wallets)],
    );
    return rows.find(({ state, owner }) => state !== "reserved" || isAlive(owner)) ?? null;
  }

  /** The spent amounts at `where.at`, from at most 290 rows per budget. */
  spent(where: Exposure): Spent {
    const { account, network, asset, host, session, at } = where;
    const first = at >= DAY_S ? Math.floor((at - DAY_S) / BUCKET_S) : 0;
    const ever = ["lifetime", `session:${session}`].map((scope) => [scope, 0]);
    const today = ["all", `host:${host}`].map((scope) => [scope, first]);
    const sums = [...ever, ...today].flatMap((scope) => [account, network, asset, ...scope]);
    const [row] = this.file.all(SPENT, ...sums, host, at - DAY_S, account);
    const sum = (name: string): bigint => BigInt(row![name]!);
    return {
      host: sum("host"),
      day: sum("day"),
      session: sum("session"),
      lifetime: sum("lifetime"),
      lost: sum("lost"),
      losses: Number(row!["losses"]),
    };
  }

  /** Adds an amount to all budgets of a payment; a negative amount gives it back. */
  addExposure(where: Exposure, microUsd: bigint): void {
    if (microUsd === 0n) return;
    const { account, network, asset, host, session, at } = where;
    const bucket = Math.floor(at / BUCKET_S);
    const scopes: [string, number][] = [["all", bucket], [`host:${host}`, bucket], ["lifetime", 0]];
    if (session !== "") scopes.push([`session:${session}`, 0]);
    const rows = scopes.map((scope) => [account, network, asset, ...scope, microUsd]);
    this.file.all(
      `INSERT INTO budgets (account, network, asset, scope, bucket, spent)
       VALUES ${rows.map(() => "(?, ?, ?, ?, ?, ?)").join(", ")}
       ON CONFLICT DO UPDATE SET spent = spent + excluded.spent`,
      ...rows.flat(),
    );
  }

  /** The payment with this row ID. */
  payment(id: number): Payment | null {
    return this.#select("id = ?", id)[0] ?? null;
  }

  /** The payment with this handle or nonce, an unfinished one first. */
  find(name: string): Payment | null {
    const names = [name, name, name.toLowerCase()];
    const found = this.#select("handle = ? OR nonce IN (?, ?)", ...names);
    return found.find(({ state }) => UNFINISHED.includes(state)) ?? found[0] ?? null;
  }

  /** All payments that were signed, oldest first. */
  payments(): Payment[] {
    return this.#select("nonce IS NOT NULL");
  }

  /** The payments of an account that block their purchase, oldest first. */
  unresolved(account: string): Payment[] {
    const states = "state IN ('in-flight', 'open', 'paid-unanswered', 'signed')";
    return this.#select(`${states} AND nonce IS NOT NULL AND account = ?`, account);
  }

  /**
   * The ID for the extension payment-identifier: one per purchase. A purchase that was not paid
   * because its payment is dead keeps its ID; one that was answered before is another purchase.
   */
  paymentId(purchase: Purchase): string {
    const condition = "purchase = ? AND account = ? AND nonce IS NOT NULL";
    const last = this.#select(condition, purchase.key, purchase.account).at(-1);
    if (last?.state === "dead" && last.paymentId !== null) return last.paymentId;
    return `pay_${randomBytes(16).toString("hex")}`;
  }

  /** Records a decision other than allow. */
  refuse(one: Refusal): void {
    this.file.transaction(() => {
      this.file.all(
        `INSERT INTO refusals (at, account, host, resource, decision, code, reason, network, pay_to,
           amount) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        ...[one.at, one.account, one.host, one.resource, one.decision, one.code, one.reason],
        ...[one.network, one.payTo, one.amount],
      );
      this.#pruneRefusals(one.at);
    });
  }

  /** The recorded refusals, oldest first. */
  refusals(): Refusal[] {
    const rows = this.file.all("SELECT *, pay_to AS payTo FROM refusals ORDER BY id");
    return rows.map(({ id: _id, pay_to: _payTo, ...row }) => ({
      ...(row as unknown as Refusal),
      at: Number(row["at"]),
    }));
  }

  #select(condition: string, ...values: readonly (string | number)[]): Payment[] {
    const sql = `SELECT * FROM payments WHERE ${condition} ORDER BY id`;
    return this.file.all(sql, ...values).map(readPayment);
  }

  #isSigned({ payer, nonce, network }: Authorization): boolean {
    return this.#select("payer = ? AND nonce = ? AND network = ?", payer, nonce, network).length > 0;
  }

  /** Whether a voucher of the payer to this payTo is unanswered: no higher one may be signed. */
  #isChannelBusy(terms: Terms, payer: string): boolean {
    const condition = `method = 'channel' AND network = ? AND asset = ? AND pay_to = ? AND payer = ?
      AND state IN ('reserved', 'signed', 'in-flight', 'open', 'paid-unanswered')`;
    const found = this.#select(condition, terms.network, terms.asset, terms.payTo, payer);
    return found.some(({ state, owner }) => state !== "reserved" || isAlive(owner));
  }

  /** Deletes the reservations of processes that died: their payments did not leave. */
  #releaseDead(): void {
    for (const payment of this.#select("state = 'reserved'")) {
      if (isAlive(payment.owner)) continue;
      this.addExposure(payment, -payment.exposure);
      this.file.all("DELETE FROM payments WHERE id = ?", payment.id);
    }
  }

  #prune(now: number): void {
    this.#releaseDead();
    const states = "('delivered', 'dead', 'lapsed', 'written-off')";
    const old = `DELETE FROM payments WHERE at <= ? AND changed_at <= ? AND state IN ${states}`;
    this.file.all(old, now - KEEP_S, now - KEEP_S);
    // An hour more, for clocks that are set back.
    const oldest = Math.floor((now - DAY_S) / BUCKET_S) - 12;
    this.file.all("DELETE FROM budgets WHERE bucket > 0 AND bucket < ?", oldest);
    this.#pruneRefusals(now);
    this.file.all("DELETE FROM approvals WHERE expires_at <= ?", now - KEEP_REFUSALS_S);
  }

  #pruneRefusals(now: number): void {
    this.file.all("DELETE FROM refusals WHERE at <= ?", now - KEEP_REFUSALS_S);
    const newest = "(SELECT max(id) FROM refusals)";
    this.file.all(`DELETE FROM refusals WHERE id <= ${newest} - ?`, this.#maxRefusals);
  }
}

/** Where a payment with these terms counts. */
export function exposureOf(
  { account, host, session }: Purchase,
  { network, asset }: Pick<Terms, "network" | "asset">,
  now: number,
): Exposure {
  return { account, network, asset, host, session, at: now };
}
