// Questions that wait in the journal for an approver with its own secret.
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { after, before, beforeEach, test } from "node:test";
import { wrapFetchWithPayment } from "@x402/fetch";
import { paying, refusal } from "./support/client.mjs";
import { base64, delivers, offer, PAYEE, seller, sells } from "./support/seller.mjs";

let shop;
const approver = generateKeyPairSync("ed25519");
const { x: approverKey } = approver.publicKey.export({ format: "jwk" });

before(async () => {
  shop = await seller({
    "/dear": sells({ amount: "20000" }),
    "/named": (request, response, payment, { url }) => {
      if (payment !== null) return delivers(response);
      const required = {
        x402Version: 2,
        resource: { url: url + request.url },
        accepts: [offer()],
        extensions: { "payment-identifier": { info: { required: false }, schema: {} } },
      };
      return response.writeHead(402, { "payment-required": base64(required) }).end("{}");
    },
  });
});
after(() => shop.close());
beforeEach(() => shop.payments.splice(0));

function customer() {
  const { guard } = paying([], { approver: approverKey });
  const fetch = guard.fetch(wrapFetchWithPayment);
  return { guard, pay: () => fetch(`${shop.url}/dear`) };
}

/** Answers all questions of a journal, signed by a key. */
function answer(guard, { key = approver.privateKey, said = "yes", change = {} } = {}) {
  const { file } = guard.journal;
  for (const found of file.all("SELECT * FROM approvals WHERE answer IS NULL")) {
    const row = { ...found, ...change };
    const parts = [row.id, row.account, row.offer, row.code, row.expires_at, said];
    const message = ["tollgauge-guard approval", ...parts].join("\n");
    const signature = sign(null, Buffer.from(message), key).toString("base64url");
    file.all("UPDATE approvals SET answer = ?, signature = ? WHERE id = ?", "yes", signature, row.id);
  }
}

test("an approval allows one payment of the offer", async () => {
  const { guard, pay } = customer();
  assert.equal(await refusal(pay()), "unknown-resource");
  assert.equal(await refusal(pay()), "unknown-resource");
  const [question, ...others] = guard.journal.file.all("SELECT * FROM approvals");
  assert.deepEqual(others, []);
  assert.match(question.prompt, /^Pay \$0\.02 to 0x[0-9a-f]{40} at 127\.0\.0\.1 on eip155:8453\?/);
  assert.deepEqual([question.pay_to, question.exposure], [PAYEE, 20_000n]);
  answer(guard);
  assert.equal((await pay()).status, 200);
  assert.equal(await refusal(pay()), "unknown-resource");
  assert.equal(shop.payments.length, 1);
});

test("an answer that the approver did not sign allows nothing", async () => {
  const forged = generateKeyPairSync("ed25519").privateKey;
  for (const forgery of [{ key: forged }, { said: "no" }, { change: { offer: "0".repeat(64) } }]) {
    const { guard, pay } = customer();
    await refusal(pay());
    answer(guard, forgery);
    assert.equal(await refusal(pay()), "unknown-resource");
  }
  assert.deepEqual(shop.payments, []);
});

test("an approval ends after ten minutes", async (context) => {
  const { guard, pay } = customer();
  await refusal(pay());
  answer(guard);
  guard.journal.file.all("UPDATE approvals SET expires_at = expires_at - 600");
  assert.equal(await refusal(pay()), "unknown-resource");
  context.diagnostic("a new question was queued");
  assert.equal(guard.journal.file.all("SELECT id FROM approvals WHERE answer IS NULL").length, 1);
});

test("a key of an approver that cannot be read is an error", () => {
  assert.throws(() => paying([], { approver: "secret" }), TypeError);
});

test("a seller that declares payment-identifier gets one ID per purchase", async () => {
  const { guard } = paying([]);
  const fetch = guard.fetch(wrapFetchWithPayment);
  for (const query of ["?1", "?1", "?2"]) await (await fetch(`${shop.url}/named${query}`)).text();
  const ids = shop.payments.map(({ extensions }) => extensions["payment-identifier"].info.id);
  assert.ok(ids.every((id) => /^pay_[0-9a-f]{32}$/.test(id)));
  assert.equal(new Set(ids).size, 3);
  assert.deepEqual(guard.journal.payments().map(({ paymentId }) => paymentId), ids);
});
