// Sellers on the official server SDK, whose settlement is slow: the guard never pays them twice.
import assert from "node:assert/strict";
import { test } from "node:test";
import { wrapFetchWithPayment } from "@x402/fetch";
import { countingSigner, paying, signingClient } from "./support/client.mjs";
import { officialSeller } from "./support/official-seller.mjs";

const TRANSACTION = `0x${"cd".repeat(32)}`;
const nonceOf = ({ payload }) => payload.authorization.nonce;

/** A facilitator that broadcasts each payment, and has no receipt of it for the first `slow` times. */
function slowFacilitator(slow) {
  const broadcast = [];
  const settle = (payload) => {
    broadcast.push(nonceOf(payload));
    const isPending = broadcast.length <= slow;
    const result = { transaction: TRANSACTION, network: "eip155:8453", payer: "" };
    if (!isPending) return { ...result, success: true };
    return { ...result, success: false, errorReason: "settlement_pending" };
  };
  return { broadcast, settle };
}

test("the official client alone settles two authorizations for one answer", async (t) => {
  const { broadcast, settle } = slowFacilitator(2);
  const shop = await officialSeller({ settle });
  t.after(shop.close);
  const pay = wrapFetchWithPayment(fetch, signingClient());
  assert.equal((await pay(`${shop.url}/paid`)).status, 402);
  assert.equal((await pay(`${shop.url}/paid`)).status, 200);
  assert.equal(new Set(broadcast).size, 2);
});

test("a settlement that is pending is followed by the same payment, until the answer comes", async (t) => {
  const { broadcast, settle } = slowFacilitator(2);
  const shop = await officialSeller({ settle });
  t.after(shop.close);
  const signer = countingSigner();
  const { guard } = paying([], { signer });
  const pay = guard.fetch(wrapFetchWithPayment);
  const pending = await pay(`${shop.url}/paid`);
  assert.equal(pending.status, 402);
  assert.ok(pending.headers.get("payment-response"));
  const [open] = guard.unresolved();
  assert.deepEqual([open.state, open.settlement], ["open", TRANSACTION]);
  assert.equal(await (await pay(`${shop.url}/paid`)).text(), "delivered");
  assert.equal(new Set(broadcast).size, 1);
  assert.equal(signer.signatures, 1);
  assert.deepEqual(guard.unresolved(), []);
});

test("a settled payment whose nonce the seller refuses from then on is not followed by another", async (t) => {
  const { broadcast, settle } = slowFacilitator(2);
  const used = { isValid: false, invalidReason: "nonce_already_used" };
  const verify = (payload) => (broadcast.includes(nonceOf(payload)) ? used : { isValid: true });
  const shop = await officialSeller({ settle, verify });
  t.after(shop.close);
  const signer = countingSigner();
  const { guard } = paying([], { signer });
  const pay = guard.fetch(wrapFetchWithPayment);
  for (let time = 0; time < 3; time += 1) {
    assert.equal((await pay(`${shop.url}/paid`)).status, 402);
  }
  assert.deepEqual([new Set(broadcast).size, signer.signatures], [1, 1]);
  assert.equal(guard.unresolved().length, 1);
});
