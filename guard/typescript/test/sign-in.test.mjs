// sign-in-with-x: the answer to an earlier payment is requested before a new payment.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, test } from "node:test";
import { createKeyPairSignerFromPrivateKeyBytes } from "@solana/kit";
import { wrapAxiosWithPayment } from "@x402/axios";
import {
  createSIWxMessage,
  parseSIWxHeader,
  verifySIWxSignature,
} from "@x402/extensions/sign-in-with-x";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";
import { document, FILE } from "../../cases/sign_in_cases.mjs";
import { readChallenge, signInHeader } from "../dist/sign-in.js";
import { row } from "./support/bundles.mjs";
import { paying } from "./support/client.mjs";
import { base64, delivers, offer, PAYEE, seller } from "./support/seller.mjs";

const text = readFileSync(FILE, "utf8");

test("the official extension signs the messages of the cases", () => {
  assert.equal(document(), text);
});

for (const { name, url, address, network, extension, message } of JSON.parse(text)) {
  test(`sign in: ${name}`, () => {
    const header = base64({ extensions: { "sign-in-with-x": extension } });
    assert.equal(readChallenge(header, url, address, network)?.message ?? null, message);
  });
}

const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const INFO = {
  ...{ domain: "api.example.com", uri: "https://api.example.com/v1/weather", version: "1" },
  ...{ nonce: "0123456789abcdef0123456789abcdef", issuedAt: "2026-01-01T00:00:00.000Z" },
};

function solanaChallenge(signer, info, type = "ed25519", chainId = SOLANA) {
  const extension = { info, supportedChains: [{ chainId, type }] };
  const header = base64({ extensions: { "sign-in-with-x": extension } });
  return readChallenge(header, INFO.uri, signer.address, SOLANA);
}

for (const [name, info] of Object.entries({
  "without a statement": INFO,
  "with every field": {
    ...{ ...INFO, statement: "Sign in to your purchase", requestId: "7" },
    ...{ resources: [INFO.uri], notBefore: INFO.issuedAt, expirationTime: "2026-01-01T00:05:00.000Z" },
  },
})) {
  test(`a Solana account signs the message of the official extension ${name}`, async () => {
    const signer = await createKeyPairSignerFromPrivateKeyBytes(new Uint8Array(32).fill(0x11));
    const challenge = solanaChallenge(signer, info);
    const chain = { chainId: SOLANA, type: "ed25519" };
    assert.equal(challenge.message, createSIWxMessage({ ...info, ...chain }, signer.address));
    const header = parseSIWxHeader(await signInHeader(signer, challenge));
    const { isValid, payer } = await verifySIWxSignature(header);
    assert.deepEqual([isValid, payer], [true, signer.address]);
  });
}

test("a Solana account does not sign for another kind of network or another site", async () => {
  const signer = await createKeyPairSignerFromPrivateKeyBytes(new Uint8Array(32).fill(0x11));
  assert.equal(solanaChallenge(signer, INFO, "eip191", "eip155:8453"), null);
  assert.equal(solanaChallenge(signer, INFO, "ed25519", "solana:short"), null);
  assert.equal(solanaChallenge(signer, { ...INFO, domain: "bank.example.com" }), null);
});

const account = privateKeyToAccount(`0x${"11".repeat(32)}`);
let shop;
/** The seller's behaviour for a payment, and for a purchase with sign-in. */
let paidStatus;
let signedInStatus;
let domain;
const signedIn = [];

before(async () => {
  shop = await seller({
    "/good": async (request, response, payment, { url }) => {
      const header = request.headers["sign-in-with-x"];
      if (header !== undefined) {
        const { isValid, payer } = await verifySIWxSignature(parseSIWxHeader(header));
        signedIn.push([isValid, payer, request.method]);
        if (signedInStatus === 200) return delivers(response, "kept for you");
        if (signedInStatus === 0) return request.socket.destroy();
      }
      if (payment !== null && paidStatus === 200) return delivers(response);
      if (payment !== null) return response.writeHead(paidStatus).end();
      const info = {
        ...{ domain: domain ?? new URL(url).host, uri: url + request.url, version: "1" },
        ...{ nonce: "0123456789abcdef", issuedAt: new Date().toISOString() },
      };
      const required = {
        ...{ x402Version: 2, resource: { url: url + request.url }, accepts: [offer()] },
        extensions: {
          "sign-in-with-x": { info, supportedChains: [{ chainId: "eip155:8453", type: "eip191" }] },
        },
      };
      return response.writeHead(402, { "payment-required": base64(required) }).end("{}");
    },
  });
});
after(() => shop.close());
beforeEach(() => {
  paidStatus = 503;
  signedInStatus = 200;
  domain = null;
  signedIn.length = 0;
  shop.payments.length = 0;
});

const CALLERS = {
  fetch: (guard) => {
    const pay = guard.fetch(wrapFetchWithPayment);
    return async (init = {}) => (await pay(`${shop.url}/good`, init)).text();
  },
  axios: (guard) => {
    const api = guard.axios(wrapAxiosWithPayment, axios.create({ validateStatus: (status) => status !== 402 }));
    return async ({ method = "GET", body } = {}) => (await api.request({ url: `${shop.url}/good`, method, data: body })).data;
  },
};

function customer(name, options = { signIn: account }) {
  const { guard } = paying([row(`${shop.url}/good`, { payTo: [PAYEE] })], options);
  return { guard, call: CALLERS[name](guard) };
}

for (const name of Object.keys(CALLERS)) {
  test(`${name}: a lost answer is obtained by signing in, and nothing is paid again`, async () => {
    const { guard, call } = customer(name);
    const post = { method: "POST", body: "city=Oslo" };
    await call(post);
    assert.deepEqual([signedIn, guard.unresolved().length], [[], 1]);
    assert.equal(await call(post), "kept for you");
    assert.deepEqual(signedIn, [[true, account.address, "POST"]]);
    assert.equal(shop.requests.at(-1).body, "city=Oslo");
    assert.deepEqual(guard.journal.payments().map(({ state }) => state), ["delivered"]);
    assert.equal(shop.payments.length, 1);
  });

  for (const status of [402, 0]) {
    test(`${name}: a seller that does not know the purchase (${status}) gets the same payment`, async () => {
      const { guard, call } = customer(name);
      await call();
      signedInStatus = status;
      paidStatus = 200;
      assert.equal(await call(), "delivered");
      assert.equal(signedIn.length, 1);
      assert.deepEqual(shop.payments[0], shop.payments[1]);
      assert.deepEqual(guard.unresolved(), []);
    });
  }

  test(`${name}: nothing is signed without the owner's account, or for another site`, async () => {
    for (const [options, site] of [
      [{}, null],
      [{ signIn: privateKeyToAccount(`0x${"12".repeat(32)}`) }, null],
      [{ signIn: account }, "bank.example.com"],
    ]) {
      domain = site;
      const { call } = customer(name, options);
      await call();
      await call();
    }
    assert.deepEqual(signedIn, []);
  });
}
