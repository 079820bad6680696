/** Import of journals that earlier versions of this guard wrote as JSON lines, once. */

import { randomBytes } from "node:crypto";
import { closeSync, copyFileSync, openSync, readFileSync, readSync, renameSync, rmSync } from "node:fs";
import { JournalError, JournalFile, newHandle, type Store } from "./journal-file.js";
import { members, parsed } from "./json.js";
import type { State } from "./payment-state.js";
import { accountId } from "./purchase-key.js";
import { parseAmount } from "./units.js";

const SQLITE = "SQLite format 3\0";
const STATES: Readonly<Record<string, State>> = {
  settled: "delivered",
  answered: "delivered",
  open: "open",
  unknown: "open",
  refused: "open",
  "paid-unanswered": "paid-unanswered",
  taken: "paid-unanswered",
  dead: "dead",
  "not-taken": "dead",
  lapsed: "lapsed",
  "written-off": "written-off",
};

type Fields = Readonly<Record<string, unknown>>;

/**
 * Replaces a file of JSON lines by a journal with its payments; the old file is kept as
 * `<path>.imported`. Does nothing for any other file. Throws JournalError for a broken line.
 */
export function importLines(path: string): void {
  if (!isLines(path)) return;
  // The lock ends with its process. The second look finds a file that another process has replaced.
  const { DatabaseSync } = process.getBuiltinModule("node:sqlite");
  const lock = new DatabaseSync(`${path}.import`);
  try {
    lock.exec("PRAGMA busy_timeout = 10000; BEGIN EXCLUSIVE");
    if (isLines(path)) replace(path);
  } finally {
    lock.close();
    rmSync(`${path}.import`, { force: true });
  }
}

function replace(path: string): void {
  const part = `${path}.${randomBytes(6).toString("hex")}`;
  try {
    write(part, readLines(path));
    copyFileSync(path, `${path}.imported`);
    // A program that still writes the old file finds it removed, and pays nothing more.
    renameSync(part, path);
  } finally {
    for (const end of ["", "-wal", "-shm"]) rmSync(part + end, { force: true });
  }
}

function write(path: string, lines: readonly Fields[]): void {
  const outcomes = new Map<string, Fields>();
  for (const { nonce, outcome } of lines) {
    if (nonce !== undefined) outcomes.set(String(nonce), members(outcome));
  }
  const file = new JournalFile(path);
  file.transaction(() => {
    for (const { signed, sent } of lines) {
      const entry = members(signed);
      if (signed === undefined) continue;
      insert(file, entry, members(sent)["value"], outcomes.get(String(entry["nonce"])));
    }
  });
  file.close();
}

function insert(file: Store, entry: Fields, header: unknown, outcome: Fields | undefined): void {
  const text = (name: string): string => String(entry[name]);
  const state = outcome === undefined ? "in-flight" : (STATES[String(outcome["fate"])] ?? "open");
  const account = accountId([text("payer")]);
  const at = Number(entry["at"]);
  const exposure = state === "dead" ? 0n : BigInt(text("microUsd"));
  const isLive = state === "in-flight" || state === "open";
  const foundAt = state === "paid-unanswered" ? Number(outcome?.["at"] ?? at) : null;
  const { status = null, transaction = null } = outcome ?? {};
  file.all(
    `INSERT INTO payments (handle, account, purchase, session, owner, state, at, changed_at, host,
       resource, url_digest, scheme, method, network, asset, pay_to, amount, exposure, payer, nonce,
       valid_before, payload, status, settlement, found_at)
     VALUES (?, ?, ?, '', '', ?, ?, ?, ?, ?, '', 'exact', 'eip3009', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ...[newHandle(), account, `legacy:${text("request")}`, state, at],
    ...[Number(outcome?.["at"] ?? at), text("host"), String(entry["resource"] ?? "")],
    ...[text("network"), text("asset"), String(entry["payTo"] ?? ""), String(entry["amount"] ?? "0")],
    ...[exposure, text("payer"), text("nonce"), Number(entry["validBefore"])],
    ...[isLive && typeof header === "string" ? header : null],
    ...[typeof status === "number" ? status : null],
    ...[typeof transaction === "string" ? transaction : null, foundAt],
  );
  const bucket = Math.floor(at / 300);
  const scopes: [string, number][] = [["all", bucket], [`host:${text("host")}`, bucket], ["lifetime", 0]];
  for (const [scope, index] of exposure > 0n ? scopes : []) {
    file.all(
      `INSERT INTO budgets (account, network, asset, scope, bucket, spent) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET spent = spent + excluded.spent`,
      ...[account, text("network"), text("asset"), scope, index, exposure],
    );
  }
}

/** Whether a file is neither empty nor an SQLite database. */
function isLines(path: string): boolean {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    return false;
  }
  const start = Buffer.alloc(SQLITE.length);
  const length = readSync(file, start);
  closeSync(file);
  return length > 0 && start.toString("latin1") !== SQLITE;
}

function readLines(path: string): Fields[] {
  // A crash may have left half a line at the end.
  const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
  return lines.map((text, index) => {
    const line = parsed(text);
    if (isLine(line)) return members(line);
    const advice = "Repair it, or name another file: then what it counted is forgotten.";
    throw new JournalError(`Line ${index + 1} of the journal ${path} is broken. ${advice}`);
  });
}

function isLine(value: unknown): boolean {
  const { signed, nonce, outcome } = members(value);
  const entry = members(signed);
  const names = ["nonce", "payer", "network", "asset", "microUsd", "host", "request"];
  const isSigned =
    names.every((name) => typeof entry[name] === "string") &&
    parseAmount(entry["microUsd"]) !== null &&
    Number.isSafeInteger(entry["at"]) &&
    Number.isSafeInteger(entry["validBefore"]);
  return isSigned || (typeof nonce === "string" && typeof members(outcome)["fate"] === "string");
}
