/**
 * The journal: every payment before it is sent, and its outcome afterwards; and what the budgets
 * count. A file of JSON lines that one process writes, or memory. The file survives the death of
 * its process at any moment; a power cut may take its last lines, since to wait for the disk takes
 * longer than all else that a guard does.
 *
 * A payment counts from its reservation, which is made in one step of the event loop with the look
 * at the budgets; so payments at the same time cannot go over one together. It counts whatever its
 * outcome is, since an authorization that was sent can be taken until it expires.
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
import type { Fate } from "./settlement.js";
import { Spending } from "./spending.js";
import { parseAmount } from "./units.js";

/** For how many seconds payments are kept that have an answer. */
const KEEP_S = 90 * 86_400;

/** A journal that cannot be read or written. While one cannot be written, nothing is paid. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

/** What came of a payment. */
export interface Outcome {
  /** Unix seconds. */
  readonly at: number;
  readonly fate: Fate;
  /** The status of the answer; null where none came. */
  readonly status: number | null;
  /** The transaction that the receipt names. */
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
  /** Unix seconds after which nobody can take it any more. */
  readonly validBefore: number;
  readonly host: string;
  readonly resource: string;
  /** SHA-256 of the request (method, URL, body) in hex. */
  readonly request: string;
  /** Unix seconds. */
  readonly at: number;
  /** Null while there is no answer. */
  readonly outcome: Outcome | null;
}

/** Money that is set aside for one payment. */
export interface Reservation {
  readonly terms: Terms;
  readonly host: string;
  readonly resource: string;
  readonly request: string;
  /** Unix seconds. */
  readonly at: number;
}

type Line =
  | { readonly signed: Omit<Entry, "outcome"> }
  | { readonly nonce: string; readonly outcome: Outcome };

export class Journal {
  readonly #file: number | null;
  /** How long the file is when nobody else writes it, in bytes. */
  #size = 0;
  /** By reservation, and by nonce once a payment is recorded. */
  readonly #spending = new Spending();
  readonly #unsettled = new Map<string, Entry>();
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
    this.#file = kept.length < lines.length ? replaced(path, file, kept) : file;
    this.#size = fstatSync(this.#file).size;
    for (const line of kept) this.#apply(line);
  }

  /** What counts at `now` (unix seconds) for a payment to `host` for `request`. */
  spent(host: string, request: string, now: number): Spent {
    return this.#spending.at(now, host, request);
  }

  /** Sets money aside, until the payment is recorded, and counts as such, or is given up. */
  reserve(reservation: Reservation): void {
    this.#spending.add(reservation, { ...reservation, microUsd: reservation.terms.microUsd });
  }

  /** Gives back what was set aside for a payment that is not sent. */
  release(reservation: Reservation): void {
    this.#spending.remove(reservation);
  }

  /** Records a payment, which may be sent then. Throws JournalError. */
  recordSigned(reservation: Reservation, payment: SignedPayment): void {
    const { terms, host, resource, request, at } = reservation;
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
    this.#append({ signed });
    this.#spending.remove(reservation);
    this.#apply({ signed });
  }

  /** Records what became of a payment. Throws JournalError. */
  recordOutcome(nonce: string, outcome: Outcome): void {
    const line = { nonce, outcome };
    this.#apply(line);
    this.#append(line);
  }

  /**
   * Records what the chain shows of a payment at `at` (unix seconds).
   * Throws JournalError, also where the payment is not among the unsettled ones.
   */
  resolve(nonce: string, at: number, fate: "taken" | "not-taken"): void {
    if (!this.#unsettled.has(nonce)) throw new JournalError(`No payment ${nonce} is unsettled.`);
    this.recordOutcome(nonce, { at, status: null, fate, transaction: null });
  }

  /** Payments without a receipt: only the chain can tell whether they were taken. Oldest first. */
  unsettled(): Entry[] {
    return [...this.#unsettled.values()];
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
      const { signed } = line;
      this.#unsettled.set(signed.nonce, { ...signed, outcome: null });
      this.#spending.add(signed.nonce, { ...signed, microUsd: BigInt(signed.microUsd) });
      return;
    }
    const { nonce, outcome } = line;
    const entry = this.#unsettled.get(nonce);
    if (["settled", "taken", "not-taken"].includes(outcome.fate)) this.#unsettled.delete(nonce);
    else if (entry !== undefined) this.#unsettled.set(nonce, { ...entry, outcome });
    if (outcome.fate === "not-taken") this.#spending.remove(nonce);
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

/** Those lines that are not of payments with an answer that were signed KEEP_S before `now`. */
function lastingLines(lines: readonly Line[], now: number): Line[] {
  const fates = new Map<string, Fate>();
  for (const line of lines) if (!("signed" in line)) fates.set(line.nonce, line.outcome.fate);
  const forgotten = new Set<string>();
  for (const line of lines) {
    if (!("signed" in line) || line.signed.at > now - KEEP_S) continue;
    const { nonce } = line.signed;
    if ((fates.get(nonce) ?? "unknown") !== "unknown") forgotten.add(nonce);
  }
  return lines.filter((line) => !forgotten.has("signed" in line ? line.signed.nonce : line.nonce));
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
    const line = parsed(text);
    if (isLine(line)) return line;
    const advice = "Repair it, or name another file: then what it counted is forgotten.";
    throw new JournalError(`Line ${index + 1} of the journal ${path} is broken. ${advice}`);
  });
}

function isLine(value: unknown): value is Line {
  const { signed, nonce, outcome } = members(value);
  const entry = members(signed);
  const texts = [entry["nonce"], entry["microUsd"], entry["host"], entry["request"]];
  const isSigned =
    texts.every((text) => typeof text === "string") &&
    parseAmount(entry["microUsd"]) !== null &&
    Number.isSafeInteger(entry["at"]);
  return isSigned || (typeof nonce === "string" && typeof members(outcome)["fate"] === "string");
}
