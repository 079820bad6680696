// The outcome of a payment without an answer, and of the next call for the same request.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row } from "./support/bundles.mjs";
import { paying } from "./support/client.mjs";
import { asks, delivers, offer, PAYEE, seller } from "./support/seller.mjs";

let shop;
let times = 0;
const next = () => `/moody?${(times += 1)}`;
/** Where the seller leads those who ask. */
let lead = "/moody";
/** The seller's behaviour for its next payments. */
let moods = [];

before(async () => {
  shop = await seller({
    "/leads": (_, response) => response.writeHead(302, { location: lead }).end(),
    "/other": (request, response, payment, { url }) =>
      payment === null ? asks(response, url + request.url, offer()) : delivers(response),
    "/moves": (_, response) => response.writeHead(302, { location: next() }).end(),
    "/moody": (request, response, payment, { url }) => {
      const mood = payment === null ? "ask" : (moods.shift() ?? "deliver");
      if (mood === "ask") asks(response, url + request.url, offer());
      if (mood === "deliver") delivers(response);
      if (mood === "hang up") request.socket.destroy();
      if (mood === "fail") response.writeHead(500).end();
      if (mood === "ask to come later") response.writeHead(429).end();
      if (mood === "complain") response.writeHead(400).end();
      if (mood === "conflict") response.writeHead(409).end();
      if (mood === "cut the answer") cutsTheAnswer(response);
      if (mood === "no receipt") response.end("delivered");
    },
  });
});
after(() => shop.close());
beforeEach(() => {
  shop.payments.length = 0;
});

function cutsTheAnswer(response) {
  response.writeHead(200, { "content-length": "100" }).write("a");
  setTimeout(() => response.destroy(), 20);
}

function customer(policy = {}) {
  const { guard } = paying([row(`${shop.url}/moody`, { payTo: [PAYEE] })], { policy });
  const fetch = guard.fetch(wrapFetchWithPayment);
  const read = async (url, init) => {
    const answer = await fetch(url, init);
    await answer.text();
    return answer;
  };
  return { guard, call: (init) => read(`${shop.url}/moody`, init), fetch: read };
}

const nonces = () => shop.payments.map(({ payload }) => payload.authorization.nonce);

const UNANSWERED = ["hang up", "fail", "ask to come later", "complain", "conflict", "ask"];
for (const mood of [...UNANSWERED, "cut the answer"]) {
  test(`after a seller did ${mood}, the same payment is sent again, and counts once`, async () => {
    moods = [mood, mood];
    const { guard, call } = customer({ maxDay: 1_000n });
    for (let time = 0; time < 2; time += 1) await call().catch(() => undefined);
    assert.equal(guard.unresolved().length, 1);
    assert.equal((await call()).status, 200);
    assert.equal(new Set(nonces()).size, 1);
    assert.equal(nonces().length, 3);
    assert.deepEqual(guard.unresolved(), []);
  });
}

test("a payment that may have been taken is not followed by a second one when the seller asks again", async () => {
  moods = ["hang up", "ask"];
  const { call } = customer();
  await call().catch(() => undefined);
  assert.equal((await call()).status, 402);
  assert.equal((await call()).status, 200);
  assert.equal(new Set(nonces()).size, 1);
});

test("a call that is given up while it is paid is unsettled", async () => {
  moods = ["say nothing"];
  const { guard, call } = customer();
  const given = new AbortController();
  const answer = call({ signal: given.signal });
  while (shop.payments.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  given.abort();
  await assert.rejects(answer, { name: "AbortError" });
  assert.deepEqual(
    guard.unresolved().map(({ state }) => state),
    ["open"],
  );
});

test("another request is paid by a payment of its own", async () => {
  moods = ["hang up"];
  const { call } = customer();
  await call({ method: "POST", body: "one" }).catch(() => undefined);
  await call({ method: "POST", body: "two" });
  assert.equal(new Set(nonces()).size, 2);
});

test("an answered request is paid again by another payment", async () => {
  const { call } = customer();
  await call();
  await call();
  assert.equal(new Set(nonces()).size, 2);
});

test("an answer without a receipt is an answer, and counts as spent", async () => {
  moods = ["no receipt"];
  const { guard, call } = customer({ maxDay: 2_000n });
  await call();
  await call();
  assert.equal(new Set(nonces()).size, 2);
  assert.deepEqual(guard.unresolved(), []);
  await assert.rejects(call(), { code: "over-day-budget" });
});

test("answered payments of the same request are limited by the budgets only", async () => {
  const { call } = customer({ maxDay: 30_000n });
  for (let time = 0; time < 30; time += 1) assert.equal((await call()).status, 200);
  await assert.rejects(call(), { code: "over-day-budget" });
});

test("a lost payment is not sent to another URL, nor is another one signed", async () => {
  moods = ["hang up"];
  const { fetch } = customer();
  await fetch(`${shop.url}/moves`).catch(() => undefined);
  await assert.rejects(fetch(`${shop.url}/moves`), { code: "payment-unresolved" });
  assert.equal(nonces().length, 1);
});

test("a lost payment is not sent to another resource that the request is redirected to now, nor is another one signed", async () => {
  moods = ["fail"];
  const { guard, fetch } = customer();
  await fetch(`${shop.url}/leads`);
  lead = "/other";
  await assert.rejects(fetch(`${shop.url}/leads`), { code: "payment-unresolved" });
  assert.equal(nonces().length, 1);
  assert.equal(guard.unresolved().length, 1);
});
