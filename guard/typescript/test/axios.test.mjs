import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { wrapAxiosWithPayment } from "@x402/axios";
import axios from "axios";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { asks, base64, offer, PAYEE, seller, sells, THIEF } from "./support/seller.mjs";

let shop;
let other;
let times = 0;
const next = () => `/asks-again?${(times += 1)}`;

before(async () => {
  other = await seller({ "/good": sells() });
  shop = await seller({
    "/good": sells(),
    "/moved": sells({ payTo: THIEF }),
    "/here": (_, response) => response.writeHead(302, { location: "/good" }).end(),
    "/elsewhere-each-time": (_, response) => response.writeHead(302, { location: next() }).end(),
    "/there": (_, response) => response.writeHead(307, { location: `${other.url}/good` }).end(),
    "/asks-again": (request, response, _, { url }) => asks(response, url + request.url, offer()),
    "/payment-to-there": (request, response, payment, { url }) => {
      if (payment === null) asks(response, url + request.url, offer());
      else response.writeHead(307, { location: `${other.url}/good` }).end();
    },
  });
});
after(() => [shop, other].map((one) => one.close()));
beforeEach(() => [shop, other].map((one) => one.payments.splice(0)));

function api(options, axiosOptions) {
  const known = ["/good", "/moved", "/payment-to-there"].map((path) =>
    row(shop.url + path, { payTo: [PAYEE] }),
  );
  const { guard } = paying([...known, row(`${other.url}/good`, { payTo: [PAYEE] })], options);
  return { guard, instance: guard.axios(wrapAxiosWithPayment, axios.create(axiosOptions)) };
}

test("a good seller is paid, with the method, the parameters and the body of the request", async () => {
  const { guard, instance } = api({}, { baseURL: shop.url });
  const answer = await instance.post("/good", { city: "Oslo" }, { params: { unit: "C" } });
  assert.equal(answer.data, "delivered");
  assert.equal(shop.payments.length, 1);
  const paid = shop.requests.at(-1);
  assert.deepEqual([paid.method, paid.body, paid.query], ["POST", '{"city":"Oslo"}', "?unit=C"]);
  assert.equal(paid.headers["content-type"], "application/json");
  assert.deepEqual(guard.unresolved(), []);
});

test("a changed payee is refused", async () => {
  assert.equal(await refusal(api().instance.get(`${shop.url}/moved`)), "payto-unknown");
  assert.deepEqual(shop.payments, []);
});

test("after a redirect the final URL is judged, and gets the payment", async () => {
  const { instance } = api();
  assert.equal((await instance.get(`${shop.url}/here`)).data, "delivered");
  const sent = await instance.get(`${shop.url}/there`, { headers: { authorization: "secret" } });
  assert.equal(sent.data, "delivered");
  assert.deepEqual([shop.payments.length, other.payments.length], [1, 1]);
  assert.equal(other.requests.at(-1).headers.authorization, undefined);
});

test("a seller that redirects elsewhere each time, and never delivers, is paid once", async () => {
  const { instance } = api();
  const call = () => instance.get(`${shop.url}/elsewhere-each-time`);
  await assert.rejects(call(), { status: 402 });
  for (let time = 0; time < 3; time += 1) assert.equal(await refusal(call()), "payment-unresolved");
  assert.equal(shop.payments.length, 1);
});

test("a POST that was redirected is refused", async () => {
  assert.equal(await refusal(api().instance.post(`${shop.url}/there`, {})), "resource-mismatch");
  assert.deepEqual(other.payments, []);
});

test("a redirect of a payment is followed without it, and a 402 there is not paid", async () => {
  const { guard, instance } = api();
  await assert.rejects(instance.get(`${shop.url}/payment-to-there`), { status: 402 });
  assert.deepEqual([shop.payments.length, other.payments.length], [1, 0]);
  assert.equal(guard.unresolved().length, 1);
});

test("what the instance adds to every request is sent to its own seller alone, and once", async () => {
  const headers = { common: { Authorization: "secret" }, get: { Cookie: "secret" } };
  const auth = { username: "me", password: "secret" };
  for (const defaults of [{ headers }, { auth }]) {
    const { instance } = api({}, { ...defaults, params: { unit: "C" } });
    await instance.get(`${shop.url}/good`);
    assert.equal(shop.requests.at(-1).query, "?unit=C");
    assert.ok(shop.requests.at(-1).headers.authorization);
    await instance.get(`${shop.url}/there`);
    const { headers: arrived, query } = other.requests.at(-1);
    assert.ok(arrived["payment-signature"]);
    assert.deepEqual([arrived.authorization, arrived.cookie, query], [undefined, undefined, ""]);
  }
});

test("an interceptor that changes the payment after the guard's look is not run for it", async () => {
  const { instance } = api();
  instance.interceptors.request.use((config) => {
    if (config.headers.get("payment-signature")) config.url = `${other.url}/good`;
    return config;
  });
  assert.equal((await instance.get(`${shop.url}/good`)).data, "delivered");
  assert.deepEqual([shop.payments.length, other.payments.length], [1, 0]);
});

test("where axios does not say which URL answered, nothing is paid", async () => {
  const { instance } = api({}, { adapter: "fetch" });
  assert.equal(await refusal(instance.get(`${shop.url}/good`)), "resource-mismatch");
  assert.deepEqual(shop.payments, []);
});

test("without redirects the fetch adapter can be paid with", async () => {
  const { instance } = api({}, { adapter: "fetch", maxRedirects: 0 });
  assert.equal((await instance.get(`${shop.url}/good`)).data, "delivered");
});

test("an answer that is no 402 is as without the guard", async () => {
  await assert.rejects(api().instance.get(`${shop.url}/nothing`), { status: 404 });
});

test("a wrapper that sends a configuration of its own, and takes a 402 as an answer, is guarded too", async () => {
  const { guard } = paying([row(`${shop.url}/asks-again`, { payTo: [PAYEE] })]);
  const wrap = (instance, client) => {
    const failed = async ({ config, response }) => {
      const asked = JSON.parse(Buffer.from(response.headers["payment-required"], "base64"));
      const payload = await client.createPaymentPayload(asked);
      const headers = { ...config.headers, "PAYMENT-SIGNATURE": base64(payload) };
      return instance.request({ ...config, headers, validateStatus: (status) => status === 402 });
    };
    instance.interceptors.response.use((answer) => answer, failed);
  };
  const answer = await guard.axios(wrap, axios.create()).get(`${shop.url}/asks-again`);
  assert.equal(answer.status, 402);
  assert.equal(shop.payments.length, 1);
  assert.equal(guard.unresolved()[0].state, "open");
});
