/**
 * The journal: every payment before it is sent, and its outcome afterwards; and what the budgets
 * count. A file of JSON lines that one process writes, or memory. The file survives the death of
 * its process at any moment; a power cut may take its last lines, because waiting for the disk
 * takes longer than everything else that a guard does.
 *
 * A payment counts from its reservation, which is made in one step of the event loop with the look
 * at the budgets; so concurrent payments cannot exceed one together. It counts whatever its outcome
 * is, unless the chain shows that it was not taken. The header of a payment is kept while it may
 * have to be sent again; a start removes it from the file once the payment is final.
 */

import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import type { Spent } from "./decision.js";
import { members, parsed } from "./json.js";
import type { Terms } from "./offer.js";
import type { SignedPayment } from "./payment.js";
import { type Fate, isFate } from "./settlement.js";
import { accountOf, type Claim, Spending } from "./spending.js";
import { parseAmount } from "./units.js";

/** For how many seconds payments are kept that have an answer. */
const KEEP_S = 90 * 86_400;

/** A journal that cannot be read or written. While one cannot be written, nothing is paid. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

/** The state of a payment, and the answer that led to it. */
export interface Outcome {
  /** Unix seconds. */
  readonly at: number;
  readonly fate: Fate;
  /** The status of the answer; null where none came. */
  readonly status: number | null;
  /** The transaction that the receipt names. It proves nothing while the payment is open. */
  readonly transaction: string | null;
}

/** A payment that was signed and allowed to be sent. Amounts are decimal texts. */
export interface Entry {
  readonly nonce: string;
  readonly payer: string;
  readonly payTo: string;
  /** Atomic units. */
  readonly amount: string;
  readonly microUsd: string;
  readonly network: string;
  readonly asset: string;
  /** Unix seconds after which it cannot be taken any more. */
  readonly validBefore: number;
  readonly host: string;
  readonly resource: string;
  /** SHA-256 of the request (method, URL, body) in hex. */
  readonly request: string;
  /** Unix seconds. */
  readonly at: number;
  /** Null while there is no complete answer. */
  readonly outcome: Outcome | null;
}

/** Money that is set aside for one payment. */
export interface Reservation extends Claim {
  readonly terms: Terms;
  readonly payer: string;
  readonly resource: string;
}

/** The header that carries a payment. */
export interface PaymentHeader {
  readonly header: string;
  readonly value: string;
}

/** States that are in the way of another payment for the same purchase. */
const UNRESOLVED: readonly (Fate | null)[] = [null, "open", "paid-unanswered"];
/** States in which neither a receipt nor the chain says whether the payment was taken. */
const UNSETTLED: readonly (Fate | null)[] = [null, "open", "answered", "lapsed"];
/** States that a start keeps however old they are. */
const KEPT: readonly (Fate | null)[] = [null, "open", "paid-unanswered", "lapsed"];

/** States in journals of earlier versions. */
const EARLIER_FATES: Readonly<Record<string, Fate>> = {
  unknown: "open",
  refused: "open",
  taken: "settled",
  "not-taken": "dead",
};

type Line =
  | { readonly signed: Omit<Entry, "outcome">; readonly sent?: PaymentHeader }
  | { readonly nonce: string; readonly outcome: Outcome };

export class Journal {
  readonly #file: number | null;
  /** How long the file is when nobody else writes it, in bytes. */
  #size = 0;
  readonly #spending = new Spending();
  /** By nonce: payments that are unresolved or unsettled. */
  readonly #entries = new Map<string, Entry>();
  /** By request: the nonces of unresolved payments, oldest first. */
  readonly #unresolved = new Map<string, string[]>();
  /** By nonce: the headers of unresolved payments. */
  readonly #sent = new Map<string, PaymentHeader>();
  #failure: JournalError | null = null;

  /**
   * `path` is a file, or null for memory alone; what is too old at `now` (unix seconds) is removed
   * from it. Throws JournalError for a file that is broken.
   */
  constructor(path: string | null, now: number) {
    this.#file = null;
    if (path === null) return;
    const file = openFile(path);
    const lines = readLines(path, readFileSync(path).toString());
    const kept = lastingLines(lines, now);
    const isChanged = kept.some((line, index) => line !== lines[index]);
    this.#file = isChanged || kept.length < lines.length ? replaced(path, file, kept) : file;
    this.#size = fstatSync(this.#file).size;
    for (const line of kept) this.#apply(line);
  }

  /** What counts at `now` (unix seconds) for a payment of an account to a host for a request. */
  spent(payment: Pick<Claim, "account" | "host" | "request">, now: number): Spent {
    return this.#spending.at(now, payment);
  }

  /** Sets money aside until the payment is recorded, and counts as such, or is given up. */
  reserve(reservation: Reservation): void {
    this.#spending.reserve(reservation);
  }

  /** Gives back what was set aside for a payment that is not sent. */
  release(reservation: Reservation): void {
    this.#spending.release(reservation);
  }

  /** Records a payment at `at` (unix seconds), which may be sent then. Throws JournalError. */
  recordSigned(
    reservation: Reservation,
    payment: SignedPayment,
    sent: PaymentHeader,
    at: number,
  ): void {
    const { terms, host, resource, request } = reservation;
    const signed = {
      nonce: payment.nonce,
      payer: payment.payer,
      payTo: terms.payTo,
      amount: String(terms.amount),
      microUsd: String(terms.microUsd),
      network: terms.network,
      asset: terms.asset,
      validBefore: payment.validBefore,
      host,
      resource,
      request,
      at,
    };
    this.#append({ signed, sent });
    this.#spending.release(reservation);
    this.#apply({ signed, sent });
  }

  /** Records the state of a payment. Throws JournalError. */
  recordOutcome(nonce: string, outcome: Outcome): void {
    const line = { nonce, outcome };
    this.#apply(line);
    this.#append(line);
  }

  /** Payments of these payers, or of all, without receipt and evidence. Oldest first. */
  unsettled(payers: ReadonlySet<string> | null = null): Entry[] {
    return this.#of(UNSETTLED, payers);
  }

  /** Payments of these payers, or of all, that are in the way of another one. Oldest first. */
  unresolved(payers: ReadonlySet<string> | null = null): Entry[] {
    return this.#of(UNRESOLVED, payers);
  }

  /** The oldest payment of these payers that is in the way of another one for a request. */
  unresolvedFor(request: string, payers: ReadonlySet<string>): Entry | null {
    const entries = (this.#unresolved.get(request) ?? []).map((nonce) => this.#entries.get(nonce));
    return entries.find((entry) => entry !== undefined && payers.has(entry.payer)) ?? null;
  }

  /** The payment of a nonce, null where it is final or not known. */
  entry(nonce: string): Entry | null {
    return this.#entries.get(nonce) ?? null;
  }

  /** The header that carried a payment, null where it is not kept. */
  sent(nonce: string): PaymentHeader | null {
    return this.#sent.get(nonce) ?? null;
  }

  #of(states: readonly (Fate | null)[], payers: ReadonlySet<string> | null): Entry[] {
    return [...this.#entries.values()].filter(
      ({ outcome, payer }) =>
        states.includes(outcome?.fate ?? null) && (payers?.has(payer) ?? true),
    );
  }

  /** Writes a line; after a failure none, so that none follows half a line. */
  #append(line: Line): void {
    if (this.#file === null) return;
    if (this.#failure !== null) throw this.#failure;
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`);
    try {
      this.#checkAlone(this.#file);
      if (writeSync(this.#file, bytes) !== bytes.length)
        throw new Error("Not all of it was written.");
      this.#size += bytes.length;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const message = `The journal cannot be written, so nothing is paid until the next start. ${reason}`;
      this.#failure = new JournalError(message, { cause: error });
      throw this.#failure;
    }
  }

  /** Two that write one file would each know half of what was spent. */
  #checkAlone(file: number): void {
    const { size, nlink } = fstatSync(file);
    if (nlink === 0) throw new Error("The file was removed.");
    if (size !== this.#size) throw new Error("Something else has changed it: one guard alone may write it.");
  }

  /** Takes a line of the file into account. */
  #apply(line: Line): void {
    if ("signed" in line) {
      const { signed, sent } = line;
      const { nonce, payer, network, asset, request } = signed;
      this.#entries.set(nonce, { ...signed, outcome: null });
      this.#unresolved.set(request, [...(this.#unresolved.get(request) ?? []), nonce]);
      if (sent !== undefined) this.#sent.set(nonce, sent);
      const account = accountOf(payer, network, asset);
      this.#spending.add(nonce, { ...signed, account, microUsd: BigInt(signed.microUsd) });
      return;
    }
    const { nonce, outcome } = line;
    const entry = this.#entries.get(nonce);
    if (outcome.fate === "dead") this.#spending.remove(nonce);
    if (entry === undefined) return;
    const isUnresolved = UNRESOLVED.includes(outcome.fate);
    if (isUnresolved || UNSETTLED.includes(outcome.fate)) {
      this.#entries.set(nonce, { ...entry, outcome });
    } else {
      this.#entries.delete(nonce);
    }
    if (isUnresolved) return;
    this.#sent.delete(nonce);
    const others = (this.#unresolved.get(entry.request) ?? []).filter((one) => one !== nonce);
    if (others.length > 0) this.#unresolved.set(entry.request, others);
    else this.#unresolved.delete(entry.request);
  }
}

/** Opens a file for appending, and removes the half of a line that a crash left at its end. */
function openFile(path: string): number {
  try {
    const file = openSync(path, "a+", 0o600);
    const content = readFileSync(path);
    ftruncateSync(file, content.lastIndexOf(0x0a) + 1);
    return file;
  } catch (error) {
    throw new JournalError(`The journal ${path} cannot be opened.`, { cause: error });
  }
}

/**
 * The lines to keep: those of payments that were signed within KEEP_S before `now`, or have no
 * answer. Only unresolved payments keep their header.
 */
function lastingLines(lines: readonly Line[], now: number): Line[] {
  const fates = new Map<string, Fate>();
  for (const line of lines) if (!("signed" in line)) fates.set(line.nonce, line.outcome.fate);
  const forgotten = new Set<string>();
  for (const line of lines) {
    if (!("signed" in line) || line.signed.at > now - KEEP_S) continue;
    const { nonce } = line.signed;
    if (!KEPT.includes(fates.get(nonce) ?? null)) forgotten.add(nonce);
  }
  const kept = lines.filter(
    (line) => !forgotten.has("signed" in line ? line.signed.nonce : line.nonce),
  );
  return kept.map((line) => {
    if (!("signed" in line) || line.sent === undefined) return line;
    const isUnresolved = UNRESOLVED.includes(fates.get(line.signed.nonce) ?? null);
    return isUnresolved ? line : { signed: line.signed };
  });
}

/**
 * Puts a file of these lines alone into the place of the one that is open, in one step, and returns
 * it open. Where that cannot be done, the old one stays.
 */
function replaced(path: string, file: number, lines: readonly Line[]): number {
  const part = `${path}.part`;
  const content = Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  try {
    rmSync(part, { force: true });
    const other = openSync(part, "ax", 0o600);
    if (writeSync(other, content) !== content.length) throw new Error("The disk is full.");
    fsyncSync(other);
    renameSync(part, path);
    closeSync(file);
    return other;
  } catch {
    rmSync(part, { force: true });
    return file;
  }
}

function readLines(path: string, content: string): Line[] {
  const lines = content.split("\n").slice(0, -1);
  return lines.map((text, index) => {
    const line = currentLine(parsed(text));
    if (isLine(line)) return line;
    const advice = "Repair it, or name another file: then what it counted is forgotten.";
    throw new JournalError(`Line ${index + 1} of the journal ${path} is broken. ${advice}`);
  });
}

/** A line with the name that its state has now. */
function currentLine(line: unknown): unknown {
  const { outcome } = members(line);
  const { fate, ...others } = members(outcome);
  const isEarlier = typeof fate === "string" && Object.hasOwn(EARLIER_FATES, fate);
  return isEarlier ? { ...members(line), outcome: { ...others, fate: EARLIER_FATES[fate] } } : line;
}

function isLine(value: unknown): value is Line {
  const { signed, nonce, outcome } = members(value);
  const entry = members(signed);
  const names = ["nonce", "payer", "network", "asset", "microUsd", "host", "request"];
  const isSigned =
    names.every((name) => typeof entry[name] === "string") &&
    parseAmount(entry["microUsd"]) !== null &&
    Number.isSafeInteger(entry["at"]) &&
    Number.isSafeInteger(entry["validBefore"]);
  return isSigned || (typeof nonce === "string" && isFate(members(outcome)["fate"]));
}
