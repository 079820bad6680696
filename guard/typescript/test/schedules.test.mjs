// Random schedules of faults: no second payment is signed while an earlier one may be taken or was.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios from "axios";
import { row } from "./support/bundles.mjs";
import { countingSigner, paying } from "./support/client.mjs";
import { chainNode } from "./support/node.mjs";
import fc from "./support/properties.mjs";
import { asks, delivers, offer, PAYEE, seller } from "./support/seller.mjs";

const WINDOW_S = 600;
const DEPTH_S = 12;
const realNow = Date.now;
let ahead = 0;
let shop;
let world;
let folder;
let journals = 0;

const FAULTS = {
  deliver: (_, response) => delivers(response),
  "ask again": (request, response) => asks(response, shop.url + request.url, offer()),
  fail: (_, response) => response.writeHead(500).end(),
  conflict: (_, response) => response.writeHead(409).end(),
  "hang up": (request) => request.socket.destroy(),
  "cut the answer": (_, response) => {
    response.writeHead(200, { "content-length": "100" }).write("a");
    setTimeout(() => response.destroy(), 2);
  },
  redirect: (_, response) => response.writeHead(307, { location: "/elsewhere" }).end(),
};

const now = () => Math.floor(Date.now() / 1000);

/** Why a payment does not stop another one, or "" if it does. */
function endedBy({ nonce, validBefore, isAnswered }, node) {
  if (isAnswered) return "an answer";
  if (now() >= validBefore + WINDOW_S) return "the end of its purchase";
  const isDead = node.hasTime && now() - world.lag - DEPTH_S >= validBefore && !node.used.has(nonce);
  return isDead ? "its death" : "";
}

function take(request, response, { payload }) {
  const { nonce, validBefore } = payload.authorization;
  const { step, node, payments } = world;
  if (!payments.has(nonce)) {
    for (const earlier of payments.values()) {
      if (endedBy(earlier, node) === "") world.problems.push([earlier.nonce, nonce]);
    }
    payments.set(nonce, { nonce, validBefore: Number(validBefore), isAnswered: false });
  }
  if (step.isSettled && now() - world.lag < Number(validBefore)) node.take(nonce, DEPTH_S);
  if (step.fault === "deliver") payments.get(nonce).isAnswered = true;
  FAULTS[step.fault](request, response);
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "guard-"));
  const startedAt = realNow();
  Date.now = () => startedAt + ahead * 1000;
  shop = await seller({
    "/good": (request, response, payment, { url }) =>
      payment === null ? asks(response, url + request.url, offer()) : take(request, response, payment),
    "/elsewhere": (_, response) => response.writeHead(404).end(),
  });
});
afterEach(() => (ahead = 0));
after(() => {
  Date.now = realNow;
  shop.close();
  rmSync(folder, { recursive: true });
});

const schedule = fc.record({
  hasNode: fc.boolean(),
  lag: fc.constantFrom(0, 30),
  isRecovering: fc.boolean(),
  steps: fc.array(
    fc.record({
      fault: fc.constantFrom(...Object.keys(FAULTS)),
      isSettled: fc.boolean(),
      pause: fc.constantFrom(0, 20, 57, 80, 700),
      calls: fc.constantFrom(1, 1, 2),
      isRestarted: fc.boolean(),
    }),
    { minLength: 2, maxLength: 6 },
  ),
});

async function play({ hasNode, lag, isRecovering, steps }, library) {
  const node = await chainNode({ now: () => Date.now() / 1000 - lag });
  node.hasTime = hasNode;
  world = { node, lag, payments: new Map(), problems: [], step: null };
  const signer = countingSigner();
  const nodes = hasNode ? { "eip155:8453": node.url } : {};
  const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
  const journal = join(folder, `${(journals += 1)}.sqlite`);
  const start = () => {
    const { client, guard } = paying(rows, { journal, signer, nodes, policy: { lossCount: 1000, lossBudget: 1_000_000_000n } });
    if (isRecovering) client.onPaymentResponse(async () => ({ recovered: true }));
    return { guard, call: callerOf(guard, library) };
  };
  let { guard, call } = start();
  for (const step of steps) {
    world.step = step;
    await Promise.allSettled(Array.from({ length: step.calls }, call));
    ahead += step.pause;
    if (step.isRestarted) ({ guard, call } = start());
  }
  node.close();
  assert.deepEqual(world.problems, []);
  assert.equal(signer.signatures, world.payments.size);
  const known = guard.unresolved().map(({ nonce }) => nonce);
  assert.equal(guard.journal.payments().length, world.payments.size);
  for (const payment of world.payments.values()) {
    if (endedBy(payment, node) === "") assert.ok(known.includes(payment.nonce));
  }
}

function callerOf(guard, library) {
  const url = `${shop.url}/good`;
  if (library === "fetch") {
    const pay = guard.fetch(wrapFetchWithPayment);
    return async () => (await pay(url)).text();
  }
  const instance = guard.axios(wrapAxiosWithPayment, axios.create());
  return () => instance.get(url);
}

for (const library of ["fetch", "axios"]) {
  test(`${library}: no schedule of faults gets a second payment signed`, async (t) => {
    t.mock.method(process, "emitWarning", () => undefined);
    const property = fc.asyncProperty(schedule, (one) => play(one, library));
    await fc.assert(property, { numRuns: process.env.TOLLGAUGE_SCHEDULES === undefined ? 35 : 100 });
  });
}
