// The journal on disk after a crash, with a full disk, and after a second start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Journal, MEMORY } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { countingSigner, paying } from "./support/client.mjs";
import { asks, offer, PAYEE, seller, sells } from "./support/seller.mjs";
import { newHandle } from "../dist/journal-file.js";

const support = (name) => fileURLToPath(new URL(`support/${name}`, import.meta.url));
let shop;
let folder;
let file;
let paid = () => undefined;

before(async () => {
  shop = await seller({
    "/good": sells(),
    "/silent": (request, response, payment, { url }) => {
      if (payment === null) asks(response, url + request.url, offer());
      else paid();
    },
    "/hangs-up": (request, response, payment, { url }) => {
      if (payment === null) asks(response, url + request.url, offer());
      else request.socket.destroy();
    },
  });
});
after(() => shop.close());
beforeEach(() => {
  shop.payments.length = 0;
  folder = mkdtempSync(join(tmpdir(), "guard-"));
  file = join(folder, "journal.sqlite");
});
afterEach(() => rmSync(folder, { recursive: true }));

function customer(options = {}) {
  const { guard } = paying([], { journal: file, ...options });
  const fetch = guard.fetch(wrapFetchWithPayment);
  const pay = async (path) => {
    const answer = await fetch(shop.url + path);
    await answer.text();
    return answer;
  };
  return { guard, pay };
}

test("a payment whose process is killed is in the journal, and counts", async () => {
  const arrived = new Promise((resolve) => (paid = resolve));
  const child = spawn(process.execPath, [support("pays-and-dies.mjs"), `${shop.url}/silent`, file], {
    stdio: "inherit",
  });
  await arrived;
  child.kill("SIGKILL");
  await once(child, "exit");
  const { guard, pay } = customer({ policy: { maxDay: 1_999n } });
  const [entry] = guard.unresolved();
  assert.equal(entry.nonce, shop.payments[0].payload.authorization.nonce);
  assert.equal(entry.payer, shop.payments[0].payload.authorization.from.toLowerCase());
  assert.deepEqual([entry.payTo, entry.amount, entry.state], [PAYEE, "1000", "in-flight"]);
  await assert.rejects(pay("/good"), { code: "over-day-budget" });
  const again = new Promise((resolve) => (paid = resolve));
  void pay("/silent").catch(() => undefined);
  await again;
  const nonces = shop.payments.map(({ payload }) => payload.authorization.nonce);
  assert.deepEqual([nonces.length, new Set(nonces).size], [2, 1]);
});

test("a second start knows what was paid and what has no answer", async () => {
  const first = customer();
  await first.pay("/good");
  await first.pay("/hangs-up").catch(() => undefined);
  const second = customer();
  assert.deepEqual(second.guard.journal.payments(), first.guard.journal.payments());
  assert.deepEqual(
    second.guard.unresolved().map(({ state }) => state),
    ["open"],
  );
  await second.guard.writeOff(second.guard.unresolved()[0].handle);
  assert.deepEqual(customer().guard.unresolved(), []);
});

test("without the option, all guards of a user have one journal, which outlives the process", async (context) => {
  const before = process.env.XDG_STATE_HOME;
  process.env.XDG_STATE_HOME = folder;
  context.after(() => {
    if (before === undefined) delete process.env.XDG_STATE_HOME;
    else process.env.XDG_STATE_HOME = before;
  });
  const first = customer({ journal: undefined });
  await first.pay("/hangs-up").catch(() => undefined);
  first.guard.close();
  file = join(folder, "tollgauge-guard/journal.sqlite");
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const [open] = customer({ journal: undefined }).guard.unresolved();
  assert.equal(open.nonce, shop.payments[0].payload.authorization.nonce);
  assert.deepEqual(customer().guard.unresolved(), [open]);
});

test("final payments are forgotten after 90 days, and no others", async () => {
  const first = customer();
  for (const path of ["/good?1", "/hangs-up?2", "/good?3"]) await first.pay(path).catch(() => null);
  const [settled, lost, recent] = first.guard.journal.payments();
  const old = Math.floor(Date.now() / 1000) - 90 * 86_400;
  for (const { id } of [settled, lost]) {
    first.guard.journal.file.all("UPDATE payments SET at = ?1, changed_at = ?1 WHERE id = ?2", old, id);
  }
  const second = customer();
  await second.pay("/good?4");
  const left = second.guard.journal.payments().map(({ nonce }) => nonce);
  assert.deepEqual(left.slice(0, -1), [lost.nonce, recent.nonce]);
  assert.equal(left.length, 3);
});

test("two guards with one journal do not spend one budget twice", async () => {
  const [one, other] = [1, 2].map(() => customer({ policy: { maxDay: 2_000n } }));
  const calls = [1, 2, 3, 4, 5, 6].map((number) => [one, other][number % 2].pay(`/good?${number}`));
  const results = await Promise.allSettled(calls);
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 2);
  assert.equal(shop.payments.length, 2);
});

test("two processes with one journal never have two unanswered payments for one purchase", async () => {
  const arrived = new Promise((resolve) => (paid = resolve));
  const child = spawn(process.execPath, [support("pays-and-dies.mjs"), `${shop.url}/silent`, file], {
    stdio: "inherit",
  });
  await arrived;
  const signer = countingSigner();
  const { guard, pay } = customer({ signer });
  const call = pay("/silent").catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.deepEqual([shop.payments.length, signer.signatures], [1, 0]);
  const again = new Promise((resolve) => (paid = resolve));
  const gone = once(child, "exit");
  child.kill("SIGKILL");
  await again;
  const nonces = shop.payments.map(({ payload }) => payload.authorization.nonce);
  assert.deepEqual([nonces.length, new Set(nonces).size, signer.signatures], [2, 1, 0]);
  assert.equal(guard.unresolved().length, 1);
  await gone;
  void call;
});

test("a journal that was removed or replaced is not written, and nothing is paid", async () => {
  for (const lose of [unlinkSync, (path) => (unlinkSync(path), writeFileSync(path, ""))]) {
    shop.payments.length = 0;
    const { pay } = customer();
    await pay("/good");
    lose(file);
    await assert.rejects(pay("/good"), { name: "JournalError", message: /removed or replaced/ });
    assert.equal(shop.payments.length, 1);
  }
});

test("a payment that could not be written down is not sent by a second try of the same call", async () => {
  const { guard } = paying([], { journal: file });
  const stubborn = (fetch) => (input) => fetch(input).catch(() => fetch(input));
  const pay = guard.fetch((fetch, client) => wrapFetchWithPayment(stubborn(fetch), client));
  unlinkSync(file);
  await assert.rejects(pay(`${shop.url}/good`), { name: "JournalError" });
  assert.deepEqual(shop.payments, []);
});

test("a payment that the journal does not have, or whose answer is awaited, cannot be resolved", async () => {
  const { guard, pay } = customer();
  await pay("/hangs-up").catch(() => undefined);
  const [{ nonce }] = guard.unresolved();
  await assert.rejects(guard.resolve(nonce.slice(0, -1)), { name: "JournalError" });
  assert.equal((await guard.resolve(nonce.toUpperCase().replace("X", "x"))).state, "open");
  const arrived = new Promise((resolve) => (paid = resolve));
  void pay("/silent").catch(() => undefined);
  await arrived;
  const awaited = guard.unresolved().at(-1).handle;
  await assert.rejects(guard.writeOff(awaited), /waiting for the answer/);
  assert.equal(guard.journal.find(awaited).state, "in-flight");
});

test("other users cannot read the journal, which keeps payloads of open payments only", async () => {
  const { guard, pay } = customer();
  await pay("/good?token=secret");
  await pay("/hangs-up").catch(() => undefined);
  const [answered, open] = guard.journal.payments();
  assert.equal(answered.payload, null);
  assert.equal(JSON.parse(Buffer.from(open.payload, "base64")).x402Version, 2);
  for (const name of readdirSync(folder)) {
    assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600, name);
    assert.ok(!readFileSync(join(folder, name)).includes("token=secret"), name);
  }
});

test("a file of another version or program, or inside a file, is an error and is not changed", () => {
  const database = new DatabaseSync(file);
  for (const [version, table] of [[3, ""], [1, ""], [0, "CREATE TABLE payment (id INTEGER)"]]) {
    database.exec(`PRAGMA user_version = ${version}; ${table}`);
    assert.throws(() => customer(), { name: "JournalError", message: new RegExp(`version ${version}`) });
  }
  const tables = database.prepare("SELECT name FROM sqlite_master").all().map(({ name }) => name);
  assert.deepEqual(tables, ["payment"]);
  database.close();
  const text = `${file}.jsonl`;
  writeFileSync(text, "text\n");
  assert.throws(() => new Journal(text), { name: "JournalError", message: /Nothing is paid/ });
  assert.equal(readFileSync(text, "utf8"), "text\n");
  file = join(file, "journal.sqlite");
  assert.throws(() => customer(), { name: "JournalError" });
});

test("while the disk is full nothing is paid", async () => {
  const command = `trap '' XFSZ; ulimit -f 1500; exec "${process.execPath}" ${support("pays-until-full.mjs")} ${shop.url}/good ${file}`;
  const child = spawn("sh", ["-c", command], { stdio: ["ignore", "pipe", "inherit"] });
  const errors = JSON.parse((await child.stdout.toArray()).join(""));
  assert.ok(errors.length > 0 && errors.length < 60, `${errors.length}`);
  assert.ok(errors.every((error) => error.startsWith("JournalError")), errors.join("\n"));
  const known = customer().guard.journal.payments().map(({ nonce }) => nonce);
  for (const { payload } of shop.payments) assert.ok(known.includes(payload.authorization.nonce));
});

test("the newest refusals up to the limit are kept", () => {
  const journal = new Journal(MEMORY, false, 3);
  const hosts = () => journal.refusals().map(({ host }) => host);
  const refuse = (host) =>
    journal.refuse({
      ...{ at: 1_800_000_000, account: "account", host, resource: `https://${host}/` },
      ...{ decision: "refuse", code: "avoid", reason: "The service recommends avoid." },
      ...{ network: null, payTo: null, amount: null },
    });
  for (const host of ["0", "1", "2"]) refuse(host);
  assert.deepEqual(hosts(), ["0", "1", "2"]);
  for (const host of ["3", "4", "5", "6", "7", "8", "9"]) {
    refuse(host);
    assert.equal(hosts().length, 3);
  }
  assert.deepEqual(hosts(), ["7", "8", "9"]);
});

test("no command reads a handle as an option", () => {
  assert.match(newHandle(), /^[0-9a-f]{32}$/);
});
