// Payments on Solana and through payment channels, as the official clients sign them.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { TOKEN_PROGRAM_ADDRESS } from "@solana-program/token";
import { createKeyPairSignerFromPrivateKeyBytes } from "@solana/kit";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { ExactSvmScheme } from "@x402/svm/exact/client";
import { UptoSvmScheme } from "@x402/svm/upto/client";
import { row } from "./support/bundles.mjs";
import { countingSigner, paying, refusal } from "./support/client.mjs";
import { chainNode } from "./support/node.mjs";
import { asks, delivers, offer, PAYEE, seller, THIEF } from "./support/seller.mjs";

const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const GENESIS = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpwHp6ZcxkVPV";
const MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
const LAST_HEIGHT = 250;
const keys = [0x11, 0x12, 0x13, 0x14].map((byte) => new Uint8Array(32).fill(byte));
const wallets = await Promise.all(keys.map((key) => createKeyPairSignerFromPrivateKeyBytes(key)));
const [wallet, payee, feePayer, authorizer] = wallets;
const ON_SOLANA = {
  ...{ network: SOLANA, asset: MINT, payTo: payee.address },
  extra: {
    ...{ feePayer: feePayer.address, recentBlockhash: "1".repeat(32), tokenProgram: TOKEN_PROGRAM_ADDRESS },
    ...{ recentSlot: 7, receiverAuthorizer: authorizer.address, withdrawDelay: 900 },
  },
};
const CHANNEL = {
  scheme: "batch-settlement",
  extra: { name: "USD Coin", version: "2", receiverAuthorizer: THIEF, withdrawDelay: 900 },
};
const OFFERS = {
  "/exact": ON_SOLANA,
  "/upto": { ...ON_SOLANA, scheme: "upto" },
  "/channel": CHANNEL,
  "/deposit": { ...CHANNEL, extra: { ...CHANNEL.extra, minDeposit: "2000000" } },
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
    else response.writeHead(503).end();
  };
  const paths = Object.entries(OFFERS).map(([path, changes]) => [path, handler(changes)]);
  shop = await seller(Object.fromEntries(paths));
});
after(() => shop.close());
beforeEach(async () => {
  Date.now = () => startedAt + ahead * 1000;
  ahead = 0;
  isDelivering = true;
  shop.payments.length = 0;
  node = await chainNode();
  node.say.getGenesisHash = () => GENESIS;
  node.say.getLatestBlockhash = () => ({ value: { lastValidBlockHeight: LAST_HEIGHT } });
});
afterEach(() => {
  Date.now = realNow;
  node.close();
});

function customer({ policy = {}, ...options } = {}) {
  const rows = Object.entries(OFFERS).map(([path, { network, payTo = PAYEE }]) =>
    row(shop.url + path, { payTo: [payTo], network, amount: "5000" }),
  );
  const signer = countingSigner();
  const exact = new ExactSvmScheme(wallet);
  exact.mintCache.set(`${SOLANA}:${MINT}`, { programAddress: TOKEN_PROGRAM_ADDRESS, decimals: 6 });
  const earlier = (client) =>
    client
      .register("solana:*", exact)
      .register("solana:*", new UptoSvmScheme(wallet))
      .register("eip155:*", new BatchSettlementEvmScheme(signer))
      .setSpendControls(false);
  const nodes = { [SOLANA]: node.url };
  const { guard } = paying(rows, { signer, earlier, policy, nodes, ...options });
  const fetch = guard.fetch(wrapFetchWithPayment);
  const pay = async (path) => {
    const answer = await fetch(shop.url + path);
    await answer.text();
    return answer.status;
  };
  return { guard, pay, signer };
}

for (const [path, scheme, method, exposure] of [
  ["/exact", "exact", "solana", 1_000n],
  ["/upto", "upto", "solana", 1_000n],
  ["/channel", "batch-settlement", "channel", 5_000n],
]) {
  test(`${path}: what the official client signs is read, counted and paid`, async () => {
    const { guard, pay } = customer();
    assert.equal(await pay(path), 200);
    const [payment] = guard.journal.payments();
    assert.deepEqual(
      [payment.scheme, payment.method, payment.state, payment.exposure],
      [scheme, method, "delivered", exposure],
    );
    assert.equal(shop.payments.length, 1);
  });

  test(`${path}: an open payment is sent again`, async () => {
    const { guard, pay } = customer();
    isDelivering = false;
    assert.deepEqual([await pay(path), await pay(path)], [503, 503]);
    isDelivering = true;
    assert.equal(await pay(path), 200);
    const [first, ...others] = shop.payments;
    assert.deepEqual(others, [first, first]);
    assert.equal(guard.journal.payments().length, 1);
  });
}

/** The node's data about the token account of a payment. */
function shows({ evidence, nonce }, finalized, found) {
  const { account } = JSON.parse(evidence);
  node.say.getBlockHeight = ([{ commitment }]) => (commitment === "finalized" ? finalized : 0);
  node.say.getSignaturesForAddress = ([address]) =>
    address === account && found !== null ? [{ signature: "of the fee payer", blockTime: null }] : [];
  node.say.getTransaction = () =>
    found === undefined ? null : { transaction: { signatures: ["of the fee payer", nonce] }, meta: found };
}
const FAILED = { err: { InstructionError: [2, "Custom"] } };

for (const path of ["/exact", "/upto"]) {
  for (const [name, finalized, found, state] of [
    ["not found at its last valid height is open", LAST_HEIGHT, null, "open"],
    ["not found above its last valid height is dead", LAST_HEIGHT + 1, null, "dead"],
    ["found is used", LAST_HEIGHT, { err: null }, "paid-unanswered"],
    ["found above its last valid height is used", LAST_HEIGHT + 1, { err: null }, "paid-unanswered"],
    ["that failed is dead above its last valid height", LAST_HEIGHT + 1, FAILED, "dead"],
    ["whose account cannot be read is open", LAST_HEIGHT + 1, undefined, "open"],
  ]) {
    test(`${path}: a payment ${name}`, async () => {
      const { guard, pay } = customer();
      isDelivering = false;
      await pay(path);
      const [payment] = guard.unresolved();
      assert.equal(payment.validHeight, LAST_HEIGHT);
      shows(payment, finalized, found);
      assert.equal((await guard.resolve(payment.handle)).state, state);
    });
  }

  test(`${path}: only a dead payment is followed by another one`, async () => {
    const { guard, pay } = customer();
    isDelivering = false;
    await pay(path);
    shows(guard.unresolved()[0], LAST_HEIGHT, null);
    ahead = 70;
    assert.equal(await refusal(pay(path)), "payment-unresolved");
    shows(guard.unresolved()[0], LAST_HEIGHT + 1, null);
    isDelivering = true;
    assert.equal(await pay(path), 200);
    assert.deepEqual(guard.journal.payments().map(({ state }) => state), ["dead", "delivered"]);
  });
}

test("a node of another Solana network, or one that was silent when it was signed, proves nothing", async () => {
  const { guard, pay } = customer();
  isDelivering = false;
  await pay("/exact");
  const [payment] = guard.unresolved();
  shows(payment, LAST_HEIGHT + 1, null);
  node.say.getGenesisHash = () => "x".repeat(44);
  assert.equal((await guard.resolve(payment.handle)).state, "open");

  node.say.getLatestBlockhash = () => new Error("busy");
  await pay("/exact?2");
  const [, other] = guard.unresolved();
  assert.equal(other.validHeight, null);
  node.say.getGenesisHash = () => GENESIS;
  assert.equal((await guard.resolve(other.nonce)).state, "open");
});

test("the deposit that a seller announces is the exposure", async () => {
  const { pay, signer } = customer();
  assert.equal(await refusal(pay("/deposit")), "over-call-cap");
  assert.equal(signer.signatures, 0);
});

test("no second voucher of a channel is signed while a call is unanswered", async () => {
  const { pay } = customer();
  isDelivering = false;
  await pay("/channel");
  assert.equal(await refusal(pay("/channel?2")), "payment-unresolved");
  assert.equal(shop.payments.length, 1);
});
