import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import {
  asks,
  base64,
  delivers,
  offer,
  PAYEE,
  seller,
  sells,
  THIEF,
  USDC,
} from "./support/seller.mjs";

let shop;
let other;

before(async () => {
  other = await seller({ "/good": sells(), "/dear": sells({ amount: "9000" }) });
  shop = await seller({
    "/good": sells(),
    "/moved": sells({ payTo: THIEF }),
    "/dear": sells({ amount: "2001" }),
    "/avoid": sells(),
    "/unknown": sells({ amount: "10000" }),
    "/unknown-dear": sells({ amount: "10001" }),
    "/here": (_, response) => response.writeHead(302, { location: "/good" }).end(),
    "/there": (_, response) => response.writeHead(307, { location: `${other.url}/good` }).end(),
    "/payment-to-there": (request, response, payment, { url }) => {
      if (payment === null) asks(response, url + request.url, offer());
      else response.writeHead(307, { location: `${other.url}/good` }).end();
    },
    "/of-another-host": (_, response) => asks(response, `${other.url}/good`, offer()),
    "/without-resource": (_, response) => asks(response, undefined, offer()),
    "/version-1": (request, response, payment, { url }) => {
      const { amount, ...rest } = offer();
      const entry = {
        ...rest,
        network: "base",
        maxAmountRequired: amount,
        resource: url + request.url,
        description: "",
        mimeType: "",
      };
      if (payment === null)
        response.writeHead(402).end(JSON.stringify({ x402Version: 1, accepts: [entry] }));
      else delivers(response);
    },
    "/both-versions": sells({ maxAmountRequired: "1000", resource: "https://elsewhere.example/" }),
    "/dear-in-its-version": sells({ amount: "999999", maxAmountRequired: "1" }),
    "/odd": (request, response, payment, { url }) => {
      const { pathname, searchParams } = new URL(request.url, url);
      asks(response, url + pathname, offer(JSON.parse(searchParams.get("offer"))));
    },
    "/gateway": sells({
      extra: { name: "USD Coin", version: "2", assetTransferMethod: "gateway" },
    }),
  });
});
after(() => [shop, other].map((one) => one.close()));
beforeEach(() => [shop, other].map((one) => one.payments.splice(0)));

function known() {
  const paths = ["/good", "/moved", "/dear", "/payment-to-there", "/version-1", "/gateway"];
  paths.push("/both-versions", "/dear-in-its-version");
  const rows = paths.map((path) => row(shop.url + path, { payTo: [PAYEE] }));
  rows.push(row(`${shop.url}/avoid`, { payTo: [PAYEE], recommendation: "avoid" }));
  return [...rows, row(`${other.url}/good`, { payTo: [PAYEE] })];
}

function guardedFetch(options) {
  const { client, guard } = paying(known(), options);
  return { client, guard, fetch: guard.fetch(wrapFetchWithPayment) };
}

test("a good seller is paid once, with the body of the request", async () => {
  const { guard, fetch } = guardedFetch();
  const answer = await fetch(`${shop.url}/good`, { method: "POST", body: "question" });
  assert.equal(await answer.text(), "delivered");
  assert.equal(shop.payments.length, 1);
  assert.equal(shop.payments[0].payload.authorization.to.toLowerCase(), PAYEE);
  const [unpaid, paid] = shop.requests.slice(-2);
  assert.deepEqual([paid.method, paid.body], ["POST", "question"]);
  assert.deepEqual([unpaid.method, unpaid.body], ["POST", "question"]);
  assert.deepEqual(guard.unresolved(), []);
});

test("a refusal says why, and what to do", async () => {
  const says = (message) => ({ name: "PaymentRefused", message });
  const { fetch } = guardedFetch();
  await assert.rejects(fetch(`${shop.url}/dear`), says(/price-jump.*\$0\.002001.*`priceFactor`/));
  await assert.rejects(fetch(`${shop.url}/unknown-dear`), says(/unknown-resource.*`unknownMax`/));
});

test("an unknown seller is paid up to a cent", async () => {
  assert.equal((await guardedFetch().fetch(`${shop.url}/unknown`)).status, 200);
});

test("a seller of version 1 is paid", async () => {
  assert.equal((await guardedFetch().fetch(`${shop.url}/version-1`)).status, 200);
});

test("a seller that says the words of both versions is judged by those of its own", async () => {
  assert.equal((await guardedFetch().fetch(`${shop.url}/both-versions`)).status, 200);
});

const REFUSED = {
  "/dear-in-its-version": "price-jump",
  "/moved": "payto-unknown",
  "/dear": "price-jump",
  "/avoid": "avoid",
  "/unknown-dear": "unknown-resource",
  "/of-another-host": "resource-mismatch",
  "/without-resource": "resource-mismatch",
  "/gateway": "scheme-unsupported",
};
for (const [path, code] of Object.entries(REFUSED)) {
  test(`${path} is refused: ${code}`, async () => {
    assert.equal(await refusal(guardedFetch().fetch(shop.url + path)), code);
    assert.deepEqual(shop.payments, []);
  });
}

const ODD = {
  amount: ["1e3", "0x3e8", " 1", "1\n", "+1", "-1", "0", "1.0", "01", "\u0661", "", 1, null, ["1"]],
  payTo: ["", "0x", THIEF.toUpperCase(), PAYEE.slice(2), `${PAYEE}\n`, USDC, [PAYEE], null],
  asset: ["", "USDC", `${USDC} `, THIEF, [USDC], null],
  network: ["base", "eip155:1", "eip155:08453", "eip155:8453 ", "EIP155:8453", "eip155:*", 8453],
  scheme: ["EXACT", "upto", "batch-settlement", "exact ", ["exact"], null],
  maxTimeoutSeconds: ["60", 0, -1, 601, 60.5, 1e18, true, [60], null],
  extra: ["gateway", null, "erc7710"].map((method) => ({ assetTransferMethod: method })),
};
for (const [name, values] of Object.entries(ODD)) {
  test(`no offer with an odd ${name} gets a signature`, async () => {
    let signatures = 0;
    const earlier = (client) => client.onAfterPaymentCreation(async () => void (signatures += 1));
    const { fetch } = guardedFetch({ earlier });
    for (const value of values) {
      const changes = JSON.stringify({ [name]: value });
      await assert.rejects(fetch(`${shop.url}/odd?offer=${encodeURIComponent(changes)}`), changes);
    }
    assert.equal(signatures, 0);
  });
}

test("after a redirect the final URL is judged, and gets the payment without the first one's secrets", async () => {
  const { fetch } = guardedFetch();
  assert.equal(await (await fetch(`${shop.url}/here`)).text(), "delivered");
  const answer = await fetch(`${shop.url}/there`, { headers: { authorization: "secret" } });
  assert.equal(await answer.text(), "delivered");
  assert.deepEqual([shop.payments.length, other.payments.length], [1, 1]);
  assert.equal(other.requests.at(-1).headers.authorization, undefined);
});

test("a POST that was redirected is refused", async () => {
  const { fetch } = guardedFetch();
  assert.equal(
    await refusal(fetch(`${shop.url}/there`, { method: "POST", body: "x" })),
    "resource-mismatch",
  );
  assert.deepEqual(other.payments, []);
});

test("a redirect of a payment is followed without it, and a 402 there is not paid", async () => {
  const { guard, fetch } = guardedFetch();
  assert.equal((await fetch(`${shop.url}/payment-to-there`)).status, 402);
  assert.deepEqual([shop.payments.length, other.payments.length], [1, 0]);
  assert.equal(guard.unresolved()[0].nonce, shop.payments[0].payload.authorization.nonce);
});

test("a client that is called without the guard's transport pays nothing", async () => {
  const { client } = guardedFetch();
  assert.match(
    String(await wrapFetchWithPayment(fetch, client)(`${shop.url}/good`).catch(String)),
    /resource-mismatch/,
  );
  assert.deepEqual(shop.payments, []);
});

test("a transport that does not say which URL answered pays nothing", async () => {
  const { guard } = paying(known());
  const silent = async () => {
    const required = { x402Version: 2, resource: { url: `${shop.url}/good` }, accepts: [offer()] };
    return new Response("{}", { status: 402, headers: { "payment-required": base64(required) } });
  };
  assert.equal(
    await refusal(guard.fetch(wrapFetchWithPayment, silent)(`${shop.url}/good`)),
    "resource-mismatch",
  );
});

test("a payment that the guard did not allow does not leave", async () => {
  const { guard, client } = paying(known());
  const allowed = [];
  client.onAfterPaymentCreation(async ({ paymentPayload }) => void allowed.push(paymentPayload));
  await guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`);
  const headers = { "payment-signature": base64(allowed[0]) };
  assert.equal(
    await refusal(guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`, { headers })),
    "signed-differs",
  );
  assert.equal(shop.payments.length, 1);
});

const CONSENT = { policy: { unknown: "ask" } };
for (const [answer, isPaid] of [
  [true, true],
  [false, false],
  ["yes", false],
]) {
  test(`a question that is answered ${answer} ${isPaid ? "pays" : "pays nothing"}`, async () => {
    const questions = [];
    const ask = async (question) => questions.push(question) && answer;
    const { fetch } = guardedFetch({ ...CONSENT, ask });
    const call = fetch(`${shop.url}/unknown`);
    if (isPaid) assert.equal((await call).status, 200);
    else assert.equal(await refusal(call), "unknown-resource");
    assert.equal(questions[0].url, `${shop.url}/unknown`);
    assert.equal(questions[0].terms.amount, 10_000n);
    assert.equal(shop.payments.length, isPaid ? 1 : 0);
  });
}

test("without an approver, or with one that fails, nothing is paid", async () => {
  assert.equal(
    await refusal(guardedFetch(CONSENT).fetch(`${shop.url}/unknown`)),
    "unknown-resource",
  );
  const ask = () => Promise.reject(new Error("nobody is there"));
  await assert.rejects(
    guardedFetch({ ...CONSENT, ask }).fetch(`${shop.url}/unknown`),
    /nobody is there/,
  );
  assert.deepEqual(shop.payments, []);
});

test("fifty payments at the same time do not go over a budget", async () => {
  const { guard, fetch } = guardedFetch({ policy: { maxDay: 7_500n } });
  const pay = async () => (await fetch(`${shop.url}/good`)).text();
  const calls = Array.from({ length: 50 }, pay);
  const results = await Promise.allSettled(calls);
  const refused = results
    .filter(({ status }) => status === "rejected")
    .map(({ reason }) => reason.code);
  assert.deepEqual(refused, Array(43).fill("over-day-budget"));
  assert.equal(shop.payments.length, 7);
  assert.deepEqual(guard.unresolved(), []);
});

test("questions at the same time do not go over a budget together", async () => {
  const policy = { unknown: "ask", maxHostDay: 25_000n };
  const ask = () => new Promise((resolve) => setImmediate(resolve, true));
  const { fetch } = guardedFetch({ policy, ask });
  const results = await Promise.allSettled(
    Array.from({ length: 10 }, () => fetch(`${shop.url}/unknown`)),
  );
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 2);
  assert.equal(shop.payments.length, 2);
});

test("a refused payment counts as nothing", async () => {
  const { client, fetch } = guardedFetch({ policy: { maxDay: 1_000n } });
  let isBroken = true;
  client.onAfterPaymentCreation(async () => {
    if (isBroken) throw new Error("a hook fails");
  });
  await assert.rejects(fetch(`${shop.url}/good`), /a hook fails/);
  isBroken = false;
  assert.equal((await fetch(`${shop.url}/good`)).status, 200);
});
