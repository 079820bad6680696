// Offers that a seller signed: the shared cases, and a seller with the official extension.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, test } from "node:test";
import { createOfferEIP712, createOfferJWS } from "@x402/extensions/offer-receipt";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { document, FILE } from "../../cases/signed_offers_cases.mjs";
import { findContradicted, termsOf } from "../dist/signed-offers.js";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { base64, delivers, offer, seller, THIEF } from "./support/seller.mjs";

const text = readFileSync(FILE, "utf8");

test("the official extension signs what the cases contain", async () => {
  assert.equal(await document(), text);
});

for (const { name, url, accepts, offers, did, contradicted } of JSON.parse(text)) {
  test(`signed offers: ${name}`, async () => {
    const extensions = { "offer-receipt": { info: { offers } } };
    const found = await findContradicted(extensions, accepts, url, did);
    assert.deepEqual([...found], contradicted.map((index) => termsOf(accepts[index])));
  });
}

const payee = privateKeyToAccount(`0x${"22".repeat(32)}`);
const sold = offer({ payTo: payee.address });
let shop;
let signedOffers;
let entry;
let isEndless = false;
let sentBytes = 0;

function sendForever(response) {
  const chunk = Buffer.alloc(65_536, " ");
  const send = () => {
    while (!response.destroyed) {
      sentBytes += chunk.length;
      if (!response.write(chunk)) return response.once("drain", send);
    }
  };
  send();
}

before(async () => {
  shop = await seller({
    "/good": (request, response, payment, { url }) => {
      if (payment !== null) return delivers(response);
      const required = {
        ...{ x402Version: 2, resource: { url: url + request.url }, accepts: [entry] },
        extensions: { "offer-receipt": { info: { offers: signedOffers } } },
      };
      return response.writeHead(402, { "payment-required": base64(required) }).end("{}");
    },
    "/.well-known/did.json": (_, response, __, { url }) => {
      if (isEndless) return sendForever(response);
      const did = `did:web:${encodeURIComponent(new URL(url).host)}`;
      const method = { id: "#account", blockchainAccountId: `eip155:8453:${payee.address}` };
      return response.end(JSON.stringify({ id: did, verificationMethod: [method] }));
    },
  });
});
after(() => shop.close());
beforeEach(() => {
  shop.payments.length = 0;
  shop.requests.length = 0;
});

async function signs(terms, account = payee) {
  const input = { acceptIndex: 0, ...terms, offerValiditySeconds: 600 };
  return createOfferEIP712(`${shop.url}/good`, input, (data) => account.signTypedData(data));
}

function pay() {
  const { guard } = paying([row(`${shop.url}/good`, { payTo: [payee.address.toLowerCase(), THIEF] })]);
  return guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`);
}

test("a seller whose payTo signed its offer is paid, and nothing else is asked", async () => {
  entry = sold;
  signedOffers = [await signs(sold)];
  assert.equal((await pay()).status, 200);
  assert.deepEqual(shop.requests.map(({ path }) => path), ["/good", "/good"]);
});

test("an offer that was changed after the payTo signed it is refused", async () => {
  entry = { ...sold, payTo: THIEF };
  signedOffers = [await signs(sold)];
  assert.equal(await refusal(pay()), "offer-contradicted");
  assert.deepEqual(shop.payments, []);
});

test("an account that the host publishes is known, and other signers change nothing", async () => {
  entry = { ...sold, payTo: THIEF };
  signedOffers = [await signs({ ...sold, payTo: THIEF, amount: "1" })];
  assert.equal(await refusal(pay()), "offer-contradicted");
  const stranger = privateKeyToAccount(`0x${"33".repeat(32)}`);
  signedOffers = [await signs({ ...sold, payTo: THIEF, amount: "1" }, stranger)];
  assert.equal((await pay()).status, 200);
  const signer = { kid: "did:web:other.example#1", format: "jws", algorithm: "EdDSA", sign: async () => "AA" };
  signedOffers = [await createOfferJWS(`${shop.url}/good`, { acceptIndex: 0, ...sold, amount: "1" }, signer)];
  assert.equal((await pay()).status, 200);
});

test("a did.json without end is not read to its end, and changes nothing", async (t) => {
  isEndless = true;
  t.after(() => (isEndless = false));
  entry = sold;
  const stranger = privateKeyToAccount(`0x${"33".repeat(32)}`);
  signedOffers = [await signs(sold, stranger)];
  assert.equal((await pay()).status, 200);
  assert.ok(sentBytes > 0 && sentBytes < 16_000_000, `${sentBytes} bytes were read`);
});
