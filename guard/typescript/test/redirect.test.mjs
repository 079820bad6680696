// Every hop counts: who redirects, and how a path is written, changes nothing about a refusal.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios from "axios";
import { newCall } from "../dist/call.js";
import { conductRow, row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { asks, delivers, offer, PAYEE, seller, sells } from "./support/seller.mjs";

let shop;
let other;

const leads = (status, location) => (_, response) => response.writeHead(status, { location }).end();
const paidThenLeads = (status, location) => (request, response, payment, { url }) => {
  if (payment === null) asks(response, url + request.url, offer());
  else leads(status, location)(request, response);
};

before(async () => {
  other = await seller({ "/good": sells(), "/free": (_, response) => response.end("free") });
  const hidden = sells();
  shop = await seller({
    "/pay": leads(307, "/p8731"),
    "/pay/": hidden,
    "/PAY": hidden,
    "/pay;x=1": hidden,
    "/p8731": hidden,
    "/good": sells(),
    "/twice": leads(302, "/pay"),
    "/away": leads(302, "/back"),
    "/back": leads(301, "/good"),
    "/for-ever": (request, response) => {
      const number = Number(new URL(request.url, "http://x").searchParams.get("n")) + 1;
      response.writeHead(302, { location: `/for-ever?n=${number}` }).end();
    },
    "/to-there": (_, response) => response.writeHead(307, { location: `${other.url}/good` }).end(),
    "/see-other": (_, response) => response.writeHead(303, { location: `${other.url}/free` }).end(),
    "/moves": (_, response) => response.writeHead(308, { location: `${other.url}/free` }).end(),
    "/paid-then-result": paidThenLeads(303, "/result"),
    "/unlisted": sells(),
    "/result": (_, response) => response.end("result"),
    "/paid-then-more": paidThenLeads(307, "/good"),
  });
});
after(() => [shop, other].map((one) => one.close()));
beforeEach(() => {
  for (const { payments, requests } of [shop, other]) {
    payments.length = 0;
    requests.length = 0;
  }
});

const rows = () => [
  row(`${shop.url}/pay`, { payTo: [PAYEE], recommendation: "avoid" }),
  row(`${shop.url}/good`, { payTo: [PAYEE] }),
  row(`${other.url}/good`, { payTo: [PAYEE] }),
];

function customers() {
  const { guard } = paying(rows());
  const pay = guard.fetch(wrapFetchWithPayment);
  const { guard: second } = paying(rows());
  const instance = second.axios(wrapAxiosWithPayment, axios.create());
  return {
    fetch: { guard, get: async (url, init) => (await pay(url, init)).text() },
    axios: { guard: second, get: async (url, init) => (await instance.get(url, init)).data },
  };
}

for (const name of ["fetch", "axios"]) {
  for (const path of ["/pay", "/twice", "/pay/", "/PAY", "/pay;x=1"]) {
    test(`${name}: ${path} inherits the refusal of /pay`, async () => {
      assert.equal(await refusal(customers()[name].get(shop.url + path)), "avoid");
      assert.deepEqual(shop.payments, []);
    });
  }

  test(`${name}: a good seller is paid after two redirects`, async () => {
    assert.equal(await customers()[name].get(`${shop.url}/away`), "delivered");
    assert.equal(shop.payments.length, 1);
  });

  test(`${name}: ten redirects are followed, and no more`, async () => {
    await assert.rejects(customers()[name].get(`${shop.url}/for-ever?n=0`));
    assert.equal(shop.requests.length, 11);
  });

  test(`${name}: no credentials follow a redirect to another origin`, async () => {
    const headers = {
      Authorization: "secret",
      Cookie: "secret",
      "X-API-Key": "secret",
      "SIGN-IN-WITH-X": "secret",
      "x-other": "kept",
    };
    await customers()[name].get(`${shop.url}/to-there`, { headers });
    assert.equal(other.requests.length, 2);
    for (const request of other.requests) {
      assert.ok(!Object.values(request.headers).includes("secret"));
      assert.equal(request.headers["x-other"], "kept");
    }
    assert.equal(shop.requests[0].headers["x-api-key"], "secret");
  });

  test(`${name}: the redirect of a payment is followed without it, and answers it`, async () => {
    const { get, guard } = customers()[name];
    assert.equal(await get(`${shop.url}/paid-then-result`), "result");
    assert.equal(shop.payments.length, 1);
    assert.equal(shop.requests.at(-1).headers["payment-signature"], undefined);
    assert.deepEqual(guard.unresolved(), []);
  });

  test(`${name}: what asks to be paid after the redirect of a payment is not paid`, async () => {
    const { get, guard } = customers()[name];
    await get(`${shop.url}/paid-then-more`).catch(() => undefined);
    assert.equal(shop.payments.length, 1);
    assert.equal(guard.unresolved().length, 1);
  });
}

test("fetch: unpaid requests are redirected as without the guard", async () => {
  const { guard } = paying(rows());
  const pay = guard.fetch(wrapFetchWithPayment);
  const post = { method: "POST", body: "text", headers: { "content-type": "text/plain" } };
  for (const [path, init] of [
    ["/see-other", post],
    ["/moves", post],
    ["/moves", {}],
  ]) {
    const [ours, plain] = [await pay(shop.url + path, init), await fetch(shop.url + path, init)];
    for (const key of ["status", "url", "redirected"]) assert.equal(ours[key], plain[key], path);
    const [first, second] = other.requests.slice(-2);
    for (const key of ["method", "body", "path"]) assert.equal(first[key], second[key], path);
    assert.equal(first.headers["content-type"], second.headers["content-type"]);
  }
  const manual = await pay(`${shop.url}/moves`, { redirect: "manual" });
  assert.equal(manual.status, 308);
  await assert.rejects(pay(`${shop.url}/moves`, { redirect: "error" }), TypeError);
});

test("fetch: an answer to a payment is as without the guard, also as a stream", async () => {
  const { guard } = paying(rows());
  const answer = await guard.fetch(wrapFetchWithPayment)(`${shop.url}/away`);
  assert.equal(answer.url, `${shop.url}/good`);
  assert.ok(answer.headers.get("payment-response"));
  const chunks = [];
  for await (const chunk of answer.body) chunks.push(Buffer.from(chunk));
  assert.equal(Buffer.concat(chunks).toString(), "delivered");
});

test("a redirect from an abusive host is refused", async (t) => {
  const abusive = await seller({
    "/": (_, response) => response.writeHead(302, { location: `${shop.url}/unlisted` }).end(),
  });
  t.after(abusive.close);
  const from = abusive.url.replace("127.0.0.1", "localhost");
  const { guard } = paying([conductRow("host:localhost", { endpoints: 3, abusive: 3 })]);
  const pay = guard.fetch(wrapFetchWithPayment);
  assert.equal((await pay(`${shop.url}/unlisted`)).status, 200);
  assert.equal(await refusal(pay(from)), "host-abusive");
});

test("a second 402 of a call is judged by the records of its own URL", async () => {
  const [good, bad] = ["https://good.example/pay", "https://bad.example/pay"];
  const rows = [row(good, { payTo: [PAYEE] }), row(bad, { payTo: [PAYEE], recommendation: "avoid" })];
  const { guard } = paying(rows);
  const call = newCall({});
  call.bundle = await guard.source.current(guard.now());
  const decide = (url) => {
    Object.assign(call, { url, required: { x402Version: 2, resource: { url } } });
    return guard.judge.decide(call, guard.judge.offer(call, offer()), false, guard.now());
  };
  assert.equal(decide(good).decision, "allow");
  assert.equal(decide(bad).code, "avoid");
});
