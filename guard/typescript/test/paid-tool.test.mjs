// The paying tool of the adapters, without a framework.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import {
  AdapterError,
  agentKitProviders,
  openAiAgentsTools,
  paidTool,
  vercelTools,
} from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row } from "./support/bundles.mjs";
import { paying } from "./support/client.mjs";
import { PAYEE, seller, sells } from "./support/seller.mjs";

let shop;
before(async () => {
  shop = await seller({
    "/good": sells(),
    "/bad": sells(),
    "/dear": sells({ amount: "2000000" }),
    "/cut": (request, response, payment, state) =>
      payment === null ? sells()(request, response, payment, state) : request.socket.destroy(),
    "/long": (_, response) => response.end("x".repeat(20_001)),
    "/endless": (_, response) => {
      const write = () => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
      };
      response.on("drain", write);
      write();
    },
  });
});
after(() => shop.close());

function open() {
  const known = { payTo: [PAYEE] };
  const rows = ["/good", "/dear", "/cut"].map((path) => row(`${shop.url}${path}`, known));
  rows.push(row(`${shop.url}/bad`, { ...known, recommendation: "avoid" }));
  const { guard } = paying(rows, { policy: { unknown: "refuse" } });
  return { guard, tool: paidTool(guard, wrapFetchWithPayment) };
}

test("a request is paid and described", async () => {
  const { guard, tool } = open();
  const result = await tool.execute({ url: `${shop.url}/good`, method: "post", body: "{}" });
  const [payment] = guard.journal.payments();
  assert.deepEqual([result.status, result.body], [200, "delivered"]);
  assert.equal(result.payment, payment.handle);
  assert.deepEqual([shop.requests.at(-1).method, shop.requests.at(-1).body], ["POST", "{}"]);
});

test("no argument of a model leads to a payment", async () => {
  const { guard, tool } = open();
  const file = new URL("../../adapters/hostile.json", import.meta.url);
  const calls = JSON.parse(readFileSync(file, "utf8").replaceAll("ORIGIN", shop.url));
  assert.equal(calls.length, 200);
  const before = shop.payments.length;
  for (const input of [...calls, null, undefined, 1, "url", [shop.url]]) {
    const result = JSON.stringify(await tool.execute(input));
    assert.ok(!result.includes("0x") && !result.includes("remedy"), result);
  }
  assert.equal(shop.payments.length, before);
  assert.deepEqual(guard.journal.payments(), []);
});

test("payment and connection headers do not reach the seller, others do", async () => {
  const { tool } = open();
  const headers = { "X-PAYMENT": "e30=", connection: "x-private", "X-Private": "1", "X-Kept": "1" };
  const result = await tool.execute({ url: `${shop.url}/good?headers`, headers });
  assert.equal(result.status, 200);
  const sent = shop.requests.filter(({ query }) => query === "?headers");
  assert.deepEqual(sent.map((one) => one.headers["x-kept"]), ["1", "1"]);
  assert.deepEqual(sent.map((one) => one.headers["x-private"]), [undefined, undefined]);
  assert.equal(sent[0].headers["x-payment"], undefined);
});

test("a payment without an answer is data", async () => {
  const { guard, tool } = open();
  const first = await tool.execute({ url: `${shop.url}/cut` });
  const [payment] = guard.journal.payments();
  assert.deepEqual([first.error, first.payment], ["request-failed", payment.handle]);
  assert.equal(guard.payment(first), null);
});

test("a long body is cut for the model", async () => {
  const result = await open().tool.execute({ url: `${shop.url}/long` });
  assert.deepEqual([result.body.length, result.truncated], [20_000, true]);
});

test("another tool that pays by x402 is rejected", () => {
  const { tool } = open();
  const ai = { tool: (options) => options, jsonSchema: (schema) => schema };
  const kit = { customActionProvider: (action) => action };
  for (const name of ["x402", "make_http_request_with_x402", "pay_402", "paid_request"]) {
    assert.throws(() => vercelTools(ai, tool, { [name]: {} }), AdapterError);
    assert.throws(() => openAiAgentsTools(ai, tool, [{ name }]), AdapterError);
    assert.throws(() => agentKitProviders(kit, null, tool, [{ name }]), AdapterError);
  }
  const kept = { search: {} };
  assert.deepEqual(Object.keys(vercelTools(ai, tool, kept)), ["search", "paid_request"]);
  assert.equal(openAiAgentsTools(ai, tool, [{ name: "search" }]).at(-1).strict, false);
});

test("a body without an end is cut", async () => {
  const { tool } = open();
  const result = await tool.execute({ url: `${shop.url}/endless` });
  assert.deepEqual([result.status, result.body.length, result.truncated], [200, 20_000, true]);
});
