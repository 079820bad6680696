// Payments by Permit2 (exact and upto): signatures, spent amounts, and evidence of the chain.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row } from "./support/bundles.mjs";
import { countingSigner, paying, refusal } from "./support/client.mjs";
import { chainNode } from "./support/node.mjs";
import { asks, base64, delivers, offer, PAYEE, seller, THIEF } from "./support/seller.mjs";

const BASE = "eip155:8453";
const FACILITATOR = "0x8ba1f109551bd432803012645ac136ddd64dba72";
const DOMAIN = { name: "USD Coin", version: "2" };
const EXACT = { extra: { ...DOMAIN, assetTransferMethod: "permit2" } };
const UPTO = {
  scheme: "upto",
  amount: "7000",
  extra: { ...DOMAIN, assetTransferMethod: "permit2", facilitatorAddress: FACILITATOR },
};
const realNow = Date.now;
const startedAt = Date.now();
let ahead = 0;
let shop;
let node;
let isDelivering;

before(async () => {
  const handler = (changes) => (request, response, payment, { url }) => {
    if (payment === null) asks(response, url + request.url, offer(changes));
    else if (isDelivering) delivers(response);
    else response.writeHead(500).end();
  };
  const sponsored = (request, response, _, { url }) => {
    const required = {
      x402Version: 2,
      resource: { url: url + request.url },
      accepts: [offer(EXACT)],
      extensions: { erc20ApprovalGasSponsoring: { info: {} } },
    };
    response.writeHead(402, { "payment-required": base64(required) }).end("{}");
  };
  shop = await seller({ "/exact": handler(EXACT), "/upto": handler(UPTO), "/sponsored": sponsored });
});
after(() => shop.close());
beforeEach(async () => {
  Date.now = () => startedAt + ahead * 1000;
  ahead = 0;
  isDelivering = true;
  shop.payments.length = 0;
  node = await chainNode();
});
afterEach(() => {
  Date.now = realNow;
  node.close();
});

function customer({ signer = countingSigner(), later = () => undefined, policy = {} } = {}) {
  const rows = ["/exact", "/upto", "/sponsored"].map((path) =>
    row(shop.url + path, { payTo: [PAYEE], amount: "7000" }),
  );
  const earlier = (client) => client.register("eip155:*", new UptoEvmScheme(signer));
  const { guard, client } = paying(rows, { signer, earlier, policy, nodes: { [BASE]: node.url } });
  later(client);
  const fetch = guard.fetch(wrapFetchWithPayment);
  const pay = async (path) => {
    const answer = await fetch(shop.url + path);
    await answer.text();
    return answer.status;
  };
  return { guard, pay, signer };
}

const nonce = () => BigInt(shop.payments.at(-1).payload.permit2Authorization.nonce);
const word = (value) => `0x${value.toString(16).padStart(64, "0")}`;
const bitmap = (isUsed) => () => word(isUsed ? 1n << (nonce() & 0xffn) : 0n);

for (const [path, scheme, exposure] of [
  ["/exact", "exact", 1_000n],
  ["/upto", "upto", 7_000n],
]) {
  test(`${path} is paid by Permit2, and its exposure counts`, async () => {
    const { guard, pay } = customer({ policy: { maxDay: exposure } });
    assert.equal(await pay(path), 200);
    const [payment] = guard.journal.payments();
    assert.deepEqual(
      [payment.scheme, payment.method, payment.state, payment.exposure, payment.nonce],
      [scheme, "permit2", "delivered", exposure, word(nonce())],
    );
    assert.equal(await refusal(pay(path)), "over-day-budget");
  });

  test(`${path}: an unused nonce is dead after its deadline, and a used one is not paid again`, async () => {
    const { guard, pay, signer } = customer();
    isDelivering = false;
    await pay(path);
    node.say.eth_call = bitmap(false);
    // A deadline is the last second of validity: the block 12 below must be past it.
    const { validBefore } = guard.unresolved()[0];
    ahead = validBefore - Math.floor(startedAt / 1000) + 11;
    assert.equal(await refusal(pay(path)), "payment-unresolved");
    ahead += 4;
    assert.equal(await pay(path), 500);
    assert.equal(signer.signatures, 2);
    node.say.eth_call = bitmap(true);
    node.say.eth_getLogs = () => [];
    ahead += 80;
    assert.equal(await refusal(pay(path)), "payment-unresolved");
    assert.equal(signer.signatures, 2);
    assert.deepEqual(
      guard.journal.payments().map(({ state }) => state),
      ["dead", "paid-unanswered"],
    );
  });
}

test("upto counts what the chain shows as settled, however often it is read", async () => {
  const { guard, pay } = customer();
  await pay("/upto");
  const [{ handle }] = guard.journal.payments();
  node.say.eth_call = bitmap(true);
  node.say.eth_getLogs = () => [
    { transactionHash: "0x01", data: word(9n) },
    { transactionHash: "0x02", data: word(1_200n) },
  ];
  node.say.eth_getTransactionByHash = ([hash]) => ({
    input: hash === "0x02" ? `0xabcdef${word(nonce()).slice(2)}` : "0xabcdef",
  });
  for (let time = 0; time < 3; time += 1) {
    const payment = await guard.resolve(handle);
    assert.deepEqual([payment.state, payment.exposure], ["delivered", 1_200n]);
    assert.equal(guard.journal.spent(payment).lifetime, 1_200n);
  }
});

const signed = (change) => (client) =>
  client.onAfterPaymentCreation(async ({ paymentPayload }) => {
    change(paymentPayload.payload.permit2Authorization);
  });
const ATTACKS = {
  "another spender": signed((fields) => (fields.spender = THIEF)),
  "another recipient": signed((fields) => (fields.witness.to = THIEF)),
  "another amount": signed((fields) => (fields.permitted.amount = "7001")),
  "another token": signed((fields) => (fields.permitted.token = THIEF)),
  "another facilitator": signed((fields) => (fields.witness.facilitator = THIEF)),
  "a longer validity": signed((fields) => (fields.deadline = "99999999999")),
};
for (const [name, later] of Object.entries(ATTACKS)) {
  test(`a payment by Permit2 with ${name} does not leave`, async () => {
    const { guard, pay } = customer({ later });
    assert.equal(await refusal(pay("/upto")), "signed-differs");
    assert.deepEqual([shop.payments, guard.journal.payments()], [[], []]);
  });
}

test("nothing is signed if the seller's extension would have the wallet sign an approval", async () => {
  const signer = countingSigner();
  signer.signTransaction = async () => assert.fail("an approval was signed");
  const { pay } = customer({ signer });
  assert.equal(await refusal(pay("/sponsored")), "extension-signs");
  assert.equal(signer.signatures, 0);
});
