// The first authorization of a purchase stays the only one until the chain shows that it is dead.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { PaymentRefused, PaymentUnresolved, paying } from "@tollgauge/guard";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios from "axios";
import { row } from "./support/bundles.mjs";
import { countingSigner, paying as clientOf } from "./support/client.mjs";
import { chainNode } from "./support/node.mjs";
import { asks, delivers, offer, PAYEE, seller } from "./support/seller.mjs";

const BASE = "eip155:8453";
const EXPIRED_S = 60;
const WINDOW_S = 600;
let shop;
let node;
let folder;
let isDelivering = false;
/** Seconds by which the clock of the program is ahead of its start; it does not advance otherwise. */
let ahead = 0;
const realNow = Date.now;
const startedAt = Date.now();

before(async () => {
  const handler = (changes) => (request, response, payment, { url }) => {
    if (payment === null) asks(response, url + request.url, offer(changes));
    else if (isDelivering) delivers(response);
    else response.writeHead(500).end();
  };
  shop = await seller({ "/good": handler(), "/dear": handler({ amount: "1000001" }) });
});
after(() => shop.close());
beforeEach(async () => {
  Date.now = () => startedAt + ahead * 1000;
  ahead = 0;
  isDelivering = false;
  shop.payments.length = 0;
  folder = mkdtempSync(join(tmpdir(), "guard-"));
  node = await chainNode();
});
afterEach(() => {
  Date.now = realNow;
  node.close();
  rmSync(folder, { recursive: true });
});

function customer({
  nodes = {},
  signer = countingSigner(),
  policy = {},
  good = {},
  ...options
} = {}) {
  const rows = [
    row(`${shop.url}/good`, { payTo: [PAYEE], ...good }),
    row(`${shop.url}/dear`, { payTo: [PAYEE], amount: "1000001" }),
  ];
  const limits = { maxCall: 2_000_000n, ...policy };
  const earlier = (client) => client.setSpendControls(false);
  const { guard, client } = clientOf(rows, { nodes, signer, earlier, policy: limits, ...options });
  const fetch = guard.fetch(wrapFetchWithPayment);
  const pay = async (path = "/good") => {
    const answer = await fetch(shop.url + path);
    await answer.text();
    return answer.status;
  };
  return { client, guard, signer, pay };
}

const nonces = () => shop.payments.map(({ payload }) => payload.authorization.nonce);

async function rejected(call) {
  const error = await call.then(
    () => assert.fail("it was paid"),
    (reason) => reason,
  );
  assert.ok(error instanceof PaymentUnresolved, error.stack);
  return error;
}

test("without a node an expired payment is not followed by another", async () => {
  const { guard, signer, pay } = customer();
  assert.equal(await pay(), 500);
  ahead = EXPIRED_S + 1;
  isDelivering = true;
  const error = await rejected(pay());
  const [entry] = guard.unresolved();
  assert.ok(error instanceof PaymentRefused);
  assert.deepEqual(
    [error.code, error.nonce, error.network, error.payer, error.resource, error.state],
    [
      "payment-unresolved",
      nonces()[0],
      BASE,
      signer.address.toLowerCase(),
      `${shop.url}/good`,
      "open",
    ],
  );
  assert.equal(error.retryUntil, entry.validBefore - 6);
  assert.match(error.message, /\$0\.001 to 0x.* has no answer and may be taken/);
  assert.match(error.message, /No other payment was signed/);
  assert.ok(error.message.includes(`guard.resolve("${error.handle}")`));
  assert.equal(signer.signatures, 1);
});

test("axios throws the same error", async () => {
  const { guard, signer } = customer();
  const instance = guard.axios(wrapAxiosWithPayment, axios.create());
  const pay = () => instance.get(`${shop.url}/good`);
  await assert.rejects(pay(), { status: 500 });
  await assert.rejects(pay(), { status: 500 });
  ahead = EXPIRED_S + 1;
  assert.equal((await rejected(pay())).nonce, nonces()[0]);
  assert.deepEqual([nonces().length, signer.signatures], [2, 1]);
});

test("a payment that the chain shows unused after its time is followed by another, and not spent", async () => {
  const { guard, signer, pay } = customer({
    nodes: { [BASE]: node.url },
    policy: { maxDay: 1_000n },
  });
  await pay();
  ahead = EXPIRED_S + 20;
  isDelivering = true;
  assert.equal(await pay(), 200);
  assert.deepEqual([new Set(nonces()).size, signer.signatures], [2, 2]);
  assert.deepEqual(guard.unresolved(), []);
});

test("a payment that the chain shows used is never followed by another without the owner's consent", async () => {
  const { guard, signer, pay } = customer({ nodes: { [BASE]: node.url } });
  await pay();
  const [nonce] = nonces();
  node.take(nonce);
  ahead = EXPIRED_S + 20;
  isDelivering = true;
  const error = await rejected(pay());
  assert.equal(error.state, "paid-unanswered");
  assert.match(error.message, /\$0\.001 to 0x.* was taken for .* and not answered/);
  assert.ok(error.message.includes(`guard.payAgain("${error.handle}")`));
  ahead += WINDOW_S - 30;
  await rejected(pay());
  assert.equal(signer.signatures, 1);
  assert.equal((await guard.payAgain(nonce)).state, "written-off");
  assert.equal(await pay(), 200);
  assert.equal(signer.signatures, 2);
  const [first, second] = guard.journal.payments();
  assert.equal(second.replaces, first.id);
});

test("a payment that is valid is sent again, although the chain shows it unused", async () => {
  const { signer, pay } = customer({ nodes: { [BASE]: node.url } });
  await pay();
  isDelivering = true;
  assert.equal(await pay(), 200);
  assert.deepEqual([nonces().length, new Set(nonces()).size, signer.signatures], [2, 1, 1]);
  assert.deepEqual(node.asked, []);
});

const DECIDES_NOTHING = {
  "is of another chain": { eth_chainId: () => "0x1" },
  "answers errors": { eth_call: () => new Error("no state") },
  "has no such contract": { eth_call: () => "0x" },
  "answers nonsense": { eth_getBlockByNumber: () => "yes" },
  "lags behind": {
    eth_getBlockByNumber: ([number]) => ({ number, timestamp: "0x1" }),
  },
};
for (const [name, say] of Object.entries(DECIDES_NOTHING)) {
  test(`a node that ${name} proves nothing`, async () => {
    const { signer, pay } = customer({ nodes: { [BASE]: node.url } });
    await pay();
    Object.assign(node.say, say);
    ahead = EXPIRED_S + 20;
    assert.equal((await rejected(pay())).state, "open");
    assert.ok(node.asked.length > 0);
    assert.equal(signer.signatures, 1);
  });
}

test("a node that is not there proves nothing", async () => {
  const { signer, pay } = customer({ nodes: { [BASE]: node.url } });
  await pay();
  node.close();
  ahead = EXPIRED_S + 20;
  await rejected(pay());
  assert.equal(signer.signatures, 1);
});

test("an expired payment is dead 12 blocks later, and one above a dollar when that is final", async () => {
  for (const [path, depth] of [["/good", 12], ["/dear", 64]]) {
    const { signer, pay } = customer({ nodes: { [BASE]: node.url } });
    await pay(path);
    ahead = EXPIRED_S + depth - 2;
    await rejected(pay(path));
    assert.equal(signer.signatures, 1);
    ahead = EXPIRED_S + depth + 2;
    await pay(path);
    assert.equal(signer.signatures, 2);
    ahead = 0;
  }
});

test("the program's clock does not decide that a payment is dead", async () => {
  const behind = await chainNode({ now: () => startedAt / 1000 });
  const { signer, pay } = customer({ nodes: { [BASE]: behind.url } });
  await pay();
  ahead = EXPIRED_S + 300;
  await rejected(pay());
  assert.equal(signer.signatures, 1);
  behind.close();
});

test("a purchase ends ten minutes after its payment has expired, and the payment counts as a loss", async (t) => {
  const warned = [];
  t.mock.method(process, "emitWarning", (message) => warned.push(message));
  const { guard, signer, pay } = customer({ policy: { maxDay: 2_000n } });
  await pay();
  ahead = EXPIRED_S + WINDOW_S - 2;
  await rejected(pay());
  ahead = EXPIRED_S + WINDOW_S + 2;
  isDelivering = true;
  assert.equal(await pay(), 200);
  assert.equal(signer.signatures, 2);
  assert.deepEqual(guard.journal.payments().map(({ state }) => state), ["lapsed", "delivered"]);
  assert.deepEqual(guard.unresolved(), []);
  assert.match(warned[0], /\$0\.001 .* counts as a loss/);
  await assert.rejects(pay("/good?other"), { code: "over-day-budget" });
});

test("resolve asks the node that it is given, and says what it shows", async () => {
  const { guard, pay } = customer();
  await pay();
  const [nonce] = nonces();
  const state = async (options) => (await guard.resolve(nonce, options)).state;
  assert.equal(await state(), "open");
  assert.equal(await state({ node: node.url }), "open");
  ahead = EXPIRED_S + 20;
  assert.equal(await state({ node: node.url }), "dead");
  assert.deepEqual(guard.unresolved(), []);
  assert.equal((await guard.writeOff(nonce)).state, "dead");
});

test("a start knows of the payments before it, and sends the same one again", async () => {
  const journal = join(folder, "journal.sqlite");
  await customer({ journal }).pay();
  isDelivering = true;
  const second = customer({ journal });
  assert.equal(await second.pay(), 200);
  assert.equal(second.signer.signatures, 0);
  assert.equal(new Set(nonces()).size, 1);
});

test("another wallet neither sends a payment again nor is stopped by it, and has budgets of its own", async () => {
  const journal = join(folder, "journal.sqlite");
  const options = { journal, policy: { maxDay: 1_000n } };
  await customer(options).pay();
  isDelivering = true;
  const other = customer({ ...options, signer: countingSigner("22") });
  assert.deepEqual([other.guard.unresolved(), other.guard.unresolved()], [[], []]);
  assert.equal(await other.pay(), 200);
  assert.equal(other.signer.signatures, 1);
  const payers = shop.payments.map(({ payload }) => payload.authorization.from);
  assert.equal(new Set(payers).size, 2);
});

test("a payment is decided again before it is sent again", async () => {
  const journal = join(folder, "journal.sqlite");
  await customer({ journal }).pay();
  const warned = customer({ journal, good: { recommendation: "avoid" } });
  await assert.rejects(warned.pay(), { code: "avoid" });
  assert.equal(nonces().length, 1);
  const questions = [];
  const ask = async ({ code }) => questions.push(code) > 1;
  const careful = customer({ journal, good: { grade: "D" }, ask });
  await assert.rejects(careful.pay(), { code: "grade-low" });
  assert.equal(nonces().length, 1);
  assert.equal(await careful.pay(), 500);
  assert.deepEqual(questions, ["grade-low", "grade-low"]);
  assert.equal(new Set(nonces()).size, 1);
});

test("identical calls wait for each other, and one payment is signed", async () => {
  const { signer, pay } = customer();
  assert.deepEqual(await Promise.all(Array.from({ length: 8 }, () => pay())), Array(8).fill(500));
  assert.deepEqual([signer.signatures, nonces().length, new Set(nonces()).size], [1, 8, 1]);
});

test("a hundred parallel calls with keys are all paid", async () => {
  const { guard } = customer();
  const fetch = guard.fetch(wrapFetchWithPayment);
  isDelivering = true;
  const calls = Array.from({ length: 100 }, (_, number) =>
    paying({ purchase: `order-${number}` }, () => fetch(`${shop.url}/good`)),
  );
  const answers = await Promise.all(calls);
  assert.deepEqual(answers.map(({ status }) => status), Array(100).fill(200));
  assert.equal(new Set(nonces()).size, 100);
});

test("an endpoint that is polled each minute is paid each time", async () => {
  const { signer, pay } = customer();
  isDelivering = true;
  for (ahead = 0; ahead < 2 * WINDOW_S; ahead += 60) assert.equal(await pay(), 200);
  assert.equal(signer.signatures, 20);
});

test("a hook that answers `recovered` does not cause a second payment", async () => {
  const { client, signer, pay } = customer();
  client.onPaymentResponse(async () => ({ recovered: true }));
  assert.equal(await pay(), 500);
  assert.deepEqual([signer.signatures, nonces().length], [1, 1]);
});

test("money stays reserved while it is being signed", async () => {
  let sign;
  const delay = () => new Promise((resolve) => (sign = resolve));
  const signer = countingSigner("11", delay);
  const { pay } = customer({ signer, policy: { maxDay: 1_500n } });
  isDelivering = true;
  const first = pay("/good?1");
  while (sign === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
  await assert.rejects(pay("/good?2"), { code: "over-day-budget" });
  sign();
  assert.equal(await first, 200);
  assert.equal(nonces().length, 1);
});

test("a given purchase is paid once whatever its request, and never ends", async () => {
  const { signer, guard } = customer();
  const fetch = guard.fetch(wrapFetchWithPayment);
  const buy = (path) => paying({ purchase: "order-42" }, () => fetch(shop.url + path));
  assert.equal((await buy("/good?1")).status, 500);
  ahead = EXPIRED_S + 10 * WINDOW_S;
  isDelivering = true;
  await rejected(buy("/good?1"));
  await rejected(buy("/good?2"));
  assert.equal((await fetch(`${shop.url}/good?2`)).status, 200);
  assert.equal(signer.signatures, 2);
});

test("values of one call only tighten the policy", async () => {
  const { guard, pay } = customer();
  isDelivering = true;
  const refused = (options) => assert.rejects(paying(options, () => pay()), PaymentRefused);
  await refused({ maxAmount: 999n });
  await refused({ expectPayTo: `0x${"1".repeat(40)}` });
  assert.equal(await paying({ maxAmount: 1_000n, expectPayTo: PAYEE }, () => pay()), 200);
  assert.deepEqual(
    guard.journal.refusals().map(({ code }) => code),
    ["over-call-cap", "payto-unexpected"],
  );
  assert.throws(() => paying({ maxAmount: 5 }, pay), TypeError);
  assert.throws(() => paying({ purchase: "" }, pay), TypeError);
});

test("after stop() nothing is paid, also what was signed before", async () => {
  const { guard, pay } = customer();
  await pay();
  isDelivering = true;
  guard.stop();
  await assert.rejects(pay(), { code: "stopped" });
  await assert.rejects(pay("/good?other"), { code: "stopped" });
  assert.equal(nonces().length, 1);
});

test("the owner agrees to pay a purchase again, or it is paid again up to a limit", async () => {
  const questions = [];
  const ask = ({ code }) => questions.push(code) > 1;
  for (const options of [{ ask }, { policy: { payAgain: "auto-up-to", payAgainMax: 1_000n } }]) {
    ahead = 0;
    isDelivering = false;
    const { guard, pay, signer } = customer({ nodes: { [BASE]: node.url }, ...options });
    await pay();
    node.take(nonces().at(-1));
    isDelivering = true;
    ahead = EXPIRED_S + 20;
    if (options.ask) await rejected(pay());
    assert.equal(await pay(), 200);
    assert.equal(signer.signatures, 2);
    const [lost, paid] = guard.journal.payments();
    assert.deepEqual([lost.state, paid.state, paid.replaces], ["written-off", "delivered", lost.id]);
  }
  assert.deepEqual(questions, ["pay-again", "pay-again"]);
});

test("three losses at a host within a day ask", async (t) => {
  t.mock.method(process, "emitWarning", () => undefined);
  const { pay } = customer();
  for (let number = 0; number < 3; number += 1) {
    await pay(`/good?${number}`);
    ahead += EXPIRED_S + WINDOW_S + 2;
    isDelivering = true;
    const next = pay(`/good?${number}`);
    if (number < 2) assert.equal(await next, 200);
    else await assert.rejects(next, { code: "over-loss-budget" });
    isDelivering = false;
  }
});

test("a response and an error name their payment", async () => {
  const { guard } = customer();
  const fetch = guard.fetch(wrapFetchWithPayment);
  const answer = await fetch(`${shop.url}/good`);
  assert.equal(guard.payment(answer).nonce, nonces()[0]);
  assert.equal(guard.payment(await fetch(`${shop.url}/free`)), null);
  const gone = new AbortController();
  const dying = guard.fetch(wrapFetchWithPayment, async (request) => {
    if (request.headers.has("payment-signature")) throw new Error("the network failed");
    return globalThis.fetch(request);
  });
  const error = await dying(`${shop.url}/good?2`, { signal: gone.signal }).catch((one) => one);
  assert.equal(guard.payment(error).state, "open");
});

test("nodes that are no HTTP URL of an EVM network are an error at the start", () => {
  for (const nodes of [{ base: node.url }, { [BASE]: "no URL" }, { [BASE]: "file:///x" }]) {
    assert.throws(() => customer({ nodes }), TypeError);
  }
});
