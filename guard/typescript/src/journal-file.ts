/**
 * The journal's file: an SQLite database that threads, processes and the Python guard share, or
 * memory. Opens it, creates its tables, and runs transactions.
 */

import { randomBytes } from "node:crypto";
import { closeSync, linkSync, mkdirSync, openSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { SCHEMA } from "./journal-schema.js";
import type { Payment, State } from "./payment-state.js";

/** `user_version` of journal.sql. */
const VERSION = 2;
const BUSY_MS = 10_000;
/** 16 MB: one payment in about 200 waits for a checkpoint, which takes some milliseconds. */
const CHECKPOINT_PAGES = 4000;
/** A journal that ends with the process: after a restart, a purchase may be paid again. */
export const MEMORY = ":memory:";
const NO_SQLITE =
  "A journal in a file or in memory needs Node.js 22.13 or newer; elsewhere, give a `Store`. Nothing is paid without a journal.";
const START_NAME = "tollgauge-guard-start";
type Threads = typeof import("node:worker_threads");
let startedAs: string | null = null;

/** A journal that cannot be read or written. While it cannot be written, nothing is paid. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

/** A row with the columns of a statement. */
export type Row = Readonly<Record<string, string | number | bigint | null>>;
type Value = string | number | bigint | null;

/**
 * Where a journal keeps its rows: an SQLite database with a synchronous interface. `JournalFile` is
 * one; runtimes without files can give another, such as one on the storage of a Durable Object.
 */
export interface Store {
  /** Runs a statement with its values, and returns its rows. */
  all(sql: string, ...values: readonly Value[]): Row[];
  /** Runs one write transaction, exclusive among all guards of the store; undone if `work` throws. */
  transaction<T>(work: () => T): T;
  close(): void;
}

/** The part of `ctx.storage` of a Durable Object with SQLite that a journal uses. */
export interface DurableStorage {
  readonly sql: { exec(sql: string, ...values: any[]): { toArray(): unknown[] } };
  transactionSync<T>(work: () => T): T;
}

/**
 * A journal in a Durable Object (Cloudflare): `journal: durableStore(this.ctx.storage)`. What was
 * written is on disk before a request leaves the object.
 */
export function durableStore(storage: DurableStorage): Store {
  // The storage takes no BigInts. Micro-dollars fit in a number.
  const plain = (value: Value): Value => (typeof value === "bigint" ? Number(value) : value);
  return {
    all: (sql, ...values) => storage.sql.exec(sql, ...values.map(plain)).toArray() as Row[],
    transaction: (work) => storage.transactionSync(work),
    close: () => undefined,
  };
}

/** Creates the tables of a journal in a store that has none. */
export function createTables(store: Store): void {
  store.transaction(() => {
    const tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'payments'";
    if (store.all(tables).length > 0) return;
    const lines = SCHEMA.replace(/--.*$/gm, "");
    const statements = lines.split(";").map((one) => one.trim());
    for (const statement of statements) {
      if (statement !== "" && !statement.startsWith("PRAGMA")) store.all(statement);
    }
  });
}

export class JournalFile implements Store {
  readonly #path: string;
  readonly #database: DatabaseSync;
  readonly #inode: bigint;
  readonly #statements = new Map<string, StatementSync>();

  /**
   * Opens a file, or `MEMORY`. With `isDurable` a transaction also survives a power failure.
   * Throws JournalError.
   */
  constructor(path: string, isDurable = false) {
    this.#path = path;
    try {
      if (path !== MEMORY) create(path);
      // Not imported: other stores work in runtimes without it.
      const sqlite = process.getBuiltinModule("node:sqlite");
      if (sqlite === undefined) throw new JournalError(NO_SQLITE);
      const { DatabaseSync } = sqlite;
      this.#database = new DatabaseSync(this.#path);
      this.#database.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
      writeAhead(this.#database);
      // NORMAL survives the death of any process; FULL also a power failure, and waits for the disk.
      this.#database.exec(`PRAGMA synchronous = ${isDurable ? "FULL" : "NORMAL"}`);
      this.#database.exec("PRAGMA secure_delete = ON");
      this.#database.exec(`PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
      this.#inode = inodeOf(this.#path);
      this.transaction(() => this.#createTables());
    } catch (error) {
      if (error instanceof JournalError) throw error;
      const why = `The journal ${this.#path} cannot be opened (${messageOf(error)}).`;
      throw new JournalError(`${why} Nothing is paid without a journal.`, { cause: error });
    }
  }

  /** The rows of a statement. Throws JournalError. */
  all(sql: string, ...values: readonly Value[]): Row[] {
    return this.#run(() => this.#statement(sql).all(...values) as Row[]);
  }

  /** Runs one write transaction, exclusive among threads and processes. Throws JournalError. */
  transaction<T>(work: () => T): T {
    if (this.#inode !== inodeOf(this.#path)) {
      const advice = "Start again. Another journal does not know what was paid.";
      throw new JournalError(`The journal ${this.#path} was removed or replaced. ${advice}`);
    }
    this.all("BEGIN IMMEDIATE");
    try {
      const result = work();
      this.all("COMMIT");
      return result;
    } catch (error) {
      // A full disk may have rolled it back already.
      if (this.#database.isTransaction !== false) rollback(this.#database);
      throw error;
    }
  }

  /** Closes the file; the journal cannot be used any more. */
  close(): void {
    this.#statements.clear();
    this.#database.close();
  }

  #createTables(): void {
    const version = this.all("PRAGMA user_version")[0]?.["user_version"] ?? 0n;
    const isNew = version === 0n && this.all("SELECT 1 FROM sqlite_master").length === 0;
    if (isNew) this.#database.exec(SCHEMA);
    else if (version !== BigInt(VERSION)) {
      const why = `The journal ${this.#path} has version ${version}, and this guard reads ${VERSION}.`;
      const advice = "Use the guard that wrote it, or name another file: what it counted is then forgotten.";
      throw new JournalError(`${why} ${advice} Nothing was changed, and nothing is paid.`);
    }
  }

  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      statement.setReadBigInts(true);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #run<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      const why = `The journal ${this.#path} cannot be read or written (${messageOf(error)}).`;
      throw new JournalError(`${why} Nothing is paid.`, { cause: error });
    }
  }
}

/** The payment in a row of the table `payments`. */
export function readPayment(row: Row): Payment {
  const text = (name: string): string => String(row[name]);
  const optional = (name: string): number | null => (row[name] === null ? null : Number(row[name]));
  return {
    id: Number(row["id"]),
    handle: text("handle"),
    account: text("account"),
    purchase: text("purchase"),
    session: text("session"),
    owner: text("owner"),
    state: text("state") as State,
    at: Number(row["at"]),
    changedAt: Number(row["changed_at"]),
    host: text("host"),
    resource: text("resource"),
    urlDigest: text("url_digest"),
    scheme: text("scheme"),
    method: text("method"),
    network: text("network"),
    asset: text("asset"),
    payTo: text("pay_to"),
    amount: text("amount"),
    exposure: BigInt(row["exposure"] ?? 0),
    payer: text("payer"),
    nonce: row["nonce"] as string | null,
    validBefore: Number(row["valid_before"]),
    validHeight: optional("valid_height"),
    evidence: row["evidence"] as string | null,
    payload: row["payload"] as string | null,
    paymentId: row["payment_id"] as string | null,
    status: optional("status"),
    settlement: row["settlement"] as string | null,
    foundAt: optional("found_at"),
    replaces: optional("replaces"),
  };
}

/** 32 hexadecimal digits, which no command reads as an option. */
export function newHandle(): string {
  return randomBytes(16).toString("hex");
}

/** Whether an error of a store is a violated constraint. */
export function isConstraint(error: unknown): boolean {
  return /\bconstraint\b/i.test(messageOf(error));
}

/**
 * A name of this process that no earlier process of this machine had: process IDs are reused, in
 * containers at every start.
 */
export function thisProcess(): string {
  // Threads are one process: those that start later inherit the value. Workers have no threads.
  const threads = process.getBuiltinModule("node:worker_threads") as Threads | undefined;
  const inherited = threads?.getEnvironmentData(START_NAME);
  if (typeof inherited === "string") return `${process.pid}-${inherited}`;
  startedAs ??= randomBytes(5).toString("hex");
  threads?.setEnvironmentData(START_NAME, startedAs);
  return `${process.pid}-${startedAs}`;
}

/** Whether a process of this machine is running; true if that cannot be determined. */
export function isAlive(owner: string): boolean {
  const [, id] = /^([0-9]{1,10})-/.exec(owner) ?? [];
  if (id === undefined) return false;
  if (Number(id) === process.pid) return owner === thisProcess();
  try {
    return process.kill(Number(id), 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/**
 * Creates a file with mode 0600. It is not opened under its own name: closing any descriptor of an
 * SQLite file drops the locks of this process's other connections to it
 * (https://sqlite.org/howtocorrupt.html, section 2.2).
 */
function create(path: string): void {
  if (inodeOf(path) !== 0n) return;
  mkdirSync(dirname(path), { recursive: true });
  const part = `${path}.${randomBytes(6).toString("hex")}`;
  closeSync(openSync(part, "wx", 0o600));
  try {
    linkSync(part, path);
  } catch (error) {
    // Another process created it.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(part, { force: true });
  }
}

/** Switches to WAL, so that readers do not wait for a writer. */
function writeAhead(database: DatabaseSync): void {
  // SQLite does not apply its busy timeout here when another process opens the same new file.
  for (const until = Date.now() + BUSY_MS; ; ) {
    try {
      database.exec("PRAGMA journal_mode = WAL");
      return;
    } catch (error) {
      if (Date.now() > until || !/locked|busy/i.test(messageOf(error))) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    }
  }
}

function rollback(database: DatabaseSync): void {
  try {
    database.exec("ROLLBACK");
  } catch {
    // There is no transaction any more.
  }
}

function inodeOf(path: string): bigint {
  return path === MEMORY ? 0n : (statSync(path, { bigint: true, throwIfNoEntry: false })?.ino ?? 0n);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
