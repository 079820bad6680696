// The journal on disk: what it says after a crash, a full disk, and a second start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { wrapFetchWithPayment } from "@x402/fetch";
import { paying } from "./support/client.mjs";
import { asks, offer, PAYEE, seller, sells } from "./support/seller.mjs";

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
  file = join(folder, "journal.jsonl");
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
  const process = spawn("node", [support("pays-and-dies.mjs"), `${shop.url}/silent`, file], {
    stdio: "inherit",
  });
  await arrived;
  process.kill("SIGKILL");
  await once(process, "exit");
  const { guard, pay } = customer({ policy: { maxDay: 1_999n } });
  const [entry] = guard.unsettled();
  assert.equal(entry.nonce, shop.payments[0].payload.authorization.nonce);
  assert.equal(entry.payer, shop.payments[0].payload.authorization.from.toLowerCase());
  assert.deepEqual([entry.payTo, entry.amount, entry.outcome], [PAYEE, "1000", null]);
  await assert.rejects(pay("/good"), { code: "over-day-budget" });
});

test("a second start knows what was paid, repeated and settled", async () => {
  const first = customer();
  for (let time = 0; time < 3; time += 1) await first.pay("/good");
  await first.pay("/hangs-up").catch(() => undefined);
  const second = customer();
  await assert.rejects(second.pay("/good"), { code: "retry-storm" });
  assert.deepEqual(
    second.guard.unsettled().map(({ outcome }) => outcome.fate),
    ["open"],
  );
  assert.deepEqual(second.guard.unsettled(), first.guard.unsettled());
  await second.guard.resolve(second.guard.unsettled()[0].nonce, { writeOff: true });
  assert.deepEqual(customer().guard.unsettled(), []);
});

test("a start forgets payments that were answered 90 days ago, and no other", async () => {
  const first = customer();
  for (const path of ["/good?1", "/hangs-up?2", "/good?3"]) await first.pay(path).catch(() => null);
  const lines = readFileSync(file, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
  const [settled, lost, recent] = lines.filter((line) => "signed" in line).map((line) => line.signed);
  for (const signed of [settled, lost]) signed.at -= 90 * 86_400;
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  const second = customer();
  const left = readFileSync(file, "utf8");
  assert.ok(!left.includes(settled.nonce));
  assert.equal(left.split(lost.nonce).length - 1, 2);
  assert.equal(left.split(recent.nonce).length - 1, 2);
  assert.deepEqual(
    second.guard.unsettled().map(({ nonce }) => nonce),
    [lost.nonce],
  );
  assert.equal(statSync(file).mode & 0o777, 0o600);
  await second.pay("/good?4");
  assert.ok(readFileSync(file, "utf8").startsWith(left));
  await assert.rejects(first.pay("/good?5"), { name: "JournalError", message: /was removed/ });
});

test("half a line at the end, which a crash leaves, is removed", async () => {
  await customer().pay("/good");
  appendFileSync(file, '{"signed":{"nonce":"0x');
  await customer().pay("/good?again");
  const content = readFileSync(file, "utf8");
  for (const { payload } of shop.payments) assert.ok(content.includes(payload.authorization.nonce));
  assert.equal(
    content
      .trimEnd()
      .split("\n")
      .every((line) => JSON.parse(line)),
    true,
  );
});

test("a journal with a broken line, or in no folder, is an error at the start", () => {
  writeFileSync(file, 'nonsense\n{"nonce":"0x1"}\n');
  assert.throws(() => customer(), { name: "JournalError", message: /Line 1/ });
  file = join(folder, "nowhere", "journal.jsonl");
  assert.throws(() => customer(), { name: "JournalError" });
});

for (const line of ['5', 'null', '{"signed":{"nonce":"0x1"}}', '{"outcome":{"fate":"settled"}}']) {
  test(`a journal with the line ${line} is an error at the start`, () => {
    writeFileSync(file, `${line}\n`);
    assert.throws(() => customer(), { name: "JournalError", message: /Line 1/ });
  });
}

test("two processes do not spend one budget twice: whoever sees the other's lines pays no more", async () => {
  const one = customer({ policy: { maxDay: 2_000n } });
  const other = customer({ policy: { maxDay: 2_000n } });
  await one.pay("/good?1");
  await assert.rejects(other.pay("/good?2"), { name: "JournalError", message: /has changed it/ });
  assert.equal(shop.payments.length, 1);
});

test("a journal that was removed or cut is not written any more, and nothing is paid", async () => {
  for (const lose of [unlinkSync, truncateSync]) {
    shop.payments.length = 0;
    const { pay } = customer();
    await pay("/good");
    lose(file);
    await assert.rejects(pay("/good"), { name: "JournalError" });
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

test("what became of a payment is said of one that is in the journal", async () => {
  const { guard, pay } = customer();
  await pay("/hangs-up").catch(() => undefined);
  const { nonce } = guard.unsettled()[0];
  await assert.rejects(guard.resolve(nonce.slice(0, -1)), { name: "JournalError" });
  assert.equal(await guard.resolve(nonce), "open");
  await guard.resolve(nonce.toUpperCase().replace("X", "x"), { writeOff: true });
  assert.deepEqual(guard.unsettled(), []);
});

test("nobody else can read the journal, and a start removes the headers of answered payments", async () => {
  const header = '"sent":{"header":"payment-signature"';
  await customer().pay("/good?token=secret");
  await customer().pay("/hangs-up").catch(() => undefined);
  assert.equal(readFileSync(file, "utf8").split(header).length - 1, 1);
  customer();
  const content = readFileSync(file, "utf8");
  assert.equal(content.split(header).length - 1, 1);
  assert.ok(!content.includes("secret"));
  assert.equal(statSync(file).mode & 0o777, 0o600);
});

for (const [earlier, now] of Object.entries({ unknown: "open", refused: "open" })) {
  test(`a payment that an earlier journal has as ${earlier} is ${now}`, async () => {
    await customer().pay("/hangs-up").catch(() => undefined);
    const written = readFileSync(file, "utf8");
    writeFileSync(file, written.replace('"fate":"open"', `"fate":"${earlier}"`));
    const { guard, pay } = customer();
    assert.equal(guard.unresolved()[0].outcome.fate, now);
    await pay("/hangs-up").catch(() => undefined);
    const nonces = shop.payments.map(({ payload }) => payload.authorization.nonce);
    assert.deepEqual([nonces.length, new Set(nonces).size], [2, 1]);
  });
}

test("while the disk is full nothing is paid", async () => {
  const command = `trap '' XFSZ; ulimit -f 4; exec node ${support("pays-until-full.mjs")} ${shop.url}/good ${file}`;
  const process = spawn("sh", ["-c", command], { stdio: ["ignore", "pipe", "inherit"] });
  const output = (await process.stdout.toArray()).join("");
  const errors = JSON.parse(output);
  const lines = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line.startsWith('{"signed"'));
  assert.ok(errors.length > 0 && errors.length < 20, output);
  assert.ok(
    errors.every((error) => error.startsWith("JournalError")),
    output,
  );
  assert.ok(shop.payments.length === 20 - errors.length);
  assert.ok(lines.length >= shop.payments.length);
});
