import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { guarded, PaymentRefused } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { newKey, row, signedBundle } from "./support/bundles.mjs";
import { asks, delivers, offer, PAYEE, seller, sells, THIEF } from "./support/seller.mjs";

const key = newKey();
const account = privateKeyToAccount(`0x${"11".repeat(32)}`);
let shop;

before(async () => {
  shop = await seller({
    "/good": sells(),
    "/moved": sells({ payTo: THIEF }),
    "/dear": sells({ amount: "2001" }),
    "/avoid": sells(),
    "/here": (_, response) => response.writeHead(302, { location: "/good" }).end(),
  });
});
after(() => shop.close());

function paying(options = {}, register = () => undefined) {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: account });
  const rows = ["/good", "/moved", "/dear"].map((path) => row(shop.url + path, { payTo: [PAYEE] }));
  rows.push(row(`${shop.url}/avoid`, { payTo: [PAYEE], recommendation: "avoid" }));
  const guard = guarded(client, { bundle: signedBundle(rows, key), key: key.jwk, ...options });
  register(client);
  shop.payments.length = 0;
  return { guard, fetch: guard.fetch(wrapFetchWithPayment) };
}

async function refusal(promise) {
  const error = await promise.then(
    () => assert.fail("it was paid"),
    (reason) => reason,
  );
  assert.ok(error instanceof PaymentRefused, error);
  return error.code;
}

test("a good seller is paid", async () => {
  const { guard, fetch } = paying();
  const answer = await fetch(`${shop.url}/good`);
  assert.equal(await answer.text(), "delivered");
  assert.equal(shop.payments.length, 1);
  assert.deepEqual(guard.unsettled(), []);
});

for (const [path, code] of [["/moved", "payto-unknown"], ["/dear", "price-jump"], ["/avoid", "avoid"]]) {
  test(`${path} is refused: ${code}`, async () => {
    const { fetch } = paying();
    assert.equal(await refusal(fetch(shop.url + path)), code);
    assert.deepEqual(shop.payments, []);
  });
}

test("after a redirect the 402 of the final URL is judged and paid", async () => {
  const { fetch } = paying();
  assert.equal(await (await fetch(`${shop.url}/here`)).text(), "delivered");
  assert.deepEqual(shop.payments.length, 1);
});
