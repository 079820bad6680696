// Answers to a purchase, and decisions about a URL without paying.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios from "axios";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { asks, base64, delivers, offer, PAYEE, seller, sells, THIEF } from "./support/seller.mjs";

let shop;
let body;

before(async () => {
  const good = (request, response, payment, { url }) =>
    payment === null ? asks(response, url + request.url, offer()) : delivers(response, body);
  shop = await seller({
    "/good": good,
    "/cut": (request, response, payment, { url }) => {
      if (payment === null) return asks(response, url + request.url, offer());
      response.writeHead(200, { "content-length": "100" }).write("a");
      return setTimeout(() => response.destroy(), 2);
    },
    "/two": (request, response, _, { url }) =>
      asks(response, url + request.url, offer(), offer({ payTo: THIEF }), offer({ scheme: "other" })),
    "/v1": (request, response, _, { url }) => {
      const { amount: maxAmountRequired, ...rest } = offer({ network: "base" });
      const accepts = [{ ...rest, maxAmountRequired, resource: url + request.url }];
      response.writeHead(402).end(JSON.stringify({ x402Version: 1, accepts }));
    },
    "/moved": (_, response) => response.writeHead(307, { location: "/good" }).end(),
    "/free": (_, response) => response.end("free"),
    "/odd": (_, response) => response.writeHead(402, { "payment-required": base64({}) }).end(),
    "/paid": sells(),
  });
});
after(() => shop.close());
beforeEach(() => {
  body = '{"result": 7}';
  shop.payments.length = 0;
});

const rows = () =>
  ["/good", "/cut", "/two", "/v1"].map((path) => row(shop.url + path, { payTo: [PAYEE] }));

/** How each library reads a body. */
const READERS = {
  fetch: (guard) => {
    const pay = guard.fetch(wrapFetchWithPayment);
    return async (url) => (await pay(url)).text();
  },
  "axios, JSON": (guard) => {
    const api = guard.axios(wrapAxiosWithPayment, axios.create());
    return async (url) => JSON.stringify((await api.get(url)).data);
  },
  "axios, bytes": (guard) => {
    const api = guard.axios(wrapAxiosWithPayment, axios.create({ responseType: "arraybuffer" }));
    return async (url) => (await api.get(url)).data.toString();
  },
  "axios, stream": (guard) => {
    const api = guard.axios(wrapAxiosWithPayment, axios.create({ responseType: "stream" }));
    return async (url) => Buffer.concat(await (await api.get(url)).data.toArray()).toString();
  },
};

for (const [name, readerOf] of Object.entries(READERS)) {
  test(`${name}: the owner's function sees a complete answer, which the caller gets as it is`, async () => {
    const seen = [];
    const isAnswer = ({ status, header, body: bytes }) => {
      seen.push([status, header("payment-response") !== null, Buffer.from(bytes).toString()]);
      return true;
    };
    const { guard } = paying(rows(), { isAnswer });
    const text = await readerOf(guard)(`${shop.url}/good`);
    assert.equal(JSON.parse(text).result, 7);
    assert.deepEqual(seen, [[200, true, body]]);
    assert.deepEqual(guard.journal.payments().map(({ state }) => state), ["delivered"]);
  });

  test(`${name}: a 200 that the owner's function rejects leaves the payment open`, async () => {
    const isAnswer = ({ body: bytes }) => "result" in JSON.parse(Buffer.from(bytes).toString());
    const { guard } = paying(rows(), { isAnswer });
    const read = readerOf(guard);
    body = '{"error": 1}';
    assert.equal(JSON.parse(await read(`${shop.url}/good`)).error, 1);
    assert.deepEqual(guard.unresolved().map(({ state }) => state), ["open"]);
    body = '{"result": 7}';
    await read(`${shop.url}/good`);
    assert.deepEqual(shop.payments[0], shop.payments[1]);
    assert.deepEqual(guard.unresolved(), []);
  });

  test(`${name}: a body that is cut is not shown to the owner's function`, async () => {
    const { guard } = paying(rows(), { isAnswer: () => assert.fail("it was called") });
    await assert.rejects(readerOf(guard)(`${shop.url}/cut`));
    assert.deepEqual(guard.unresolved().map(({ state }) => state), ["open"]);
  });
}

test("a function that throws, or does not return true, has seen no answer", async (t) => {
  t.mock.method(process, "emitWarning", () => undefined);
  for (const isAnswer of [() => assert.fail("on purpose"), () => "yes"]) {
    const { guard } = paying(rows(), { isAnswer });
    assert.equal(await READERS.fetch(guard)(`${shop.url}/good`), body);
    assert.deepEqual(guard.unresolved().map(({ state }) => state), ["open"]);
  }
});

test("a quote decides about each offer, and signs nothing", async () => {
  const { guard } = paying(rows(), { policy: { maxDay: 1_500n } });
  const quotes = await guard.quote(`${shop.url}/two`);
  assert.deepEqual(
    quotes.map(({ decision, code, payTo }) => [decision, code, payTo]),
    [
      ["allow", null, PAYEE],
      ["refuse", "payto-unknown", THIEF],
      ["refuse", "scheme-unsupported", PAYEE],
    ],
  );
  assert.match(quotes[1].remedy, /trust/);
  assert.deepEqual(await guard.quote(`${shop.url}/v1`), [
    {
      ...{ scheme: "exact", network: "eip155:8453", amount: "1000", payTo: PAYEE },
      ...{ decision: "allow", code: null, reason: null, remedy: null },
    },
  ]);
  assert.deepEqual([shop.payments, guard.journal.payments()], [[], []]);

  await guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`);
  const [{ code }] = await guard.quote(`${shop.url}/moved`);
  assert.equal(code, "over-day-budget");
  await assert.rejects(guard.quote(`${shop.url}/free`), /answers 200, not 402/);
  await assert.rejects(guard.quote(`${shop.url}/odd`), /cannot be read/);
});

test("after stop nothing is quoted or paid, also what was signed", async () => {
  const { guard } = paying(rows());
  const pay = guard.fetch(wrapFetchWithPayment);
  guard.stop();
  assert.equal(await refusal(pay(`${shop.url}/good`)), "stopped");
  assert.equal((await guard.quote(`${shop.url}/good`))[0].code, "stopped");
  assert.deepEqual(shop.payments, []);
});
