// The official client, with a guard that knows what a test says of its sellers.
import assert from "node:assert/strict";
import { guarded, PaymentRefused } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";
import { newKey, signedBundle } from "./bundles.mjs";

const signer = privateKeyToAccount(`0x${"11".repeat(32)}`);
export const key = newKey();

export function signingClient() {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer });
  return client;
}

/** A client that signs, and its guard. `earlier` registers hooks before the guard's. */
export function paying(rows, { earlier = () => undefined, ...options } = {}) {
  const client = signingClient();
  earlier(client);
  const guard = guarded(client, { bundle: signedBundle(rows, key), key: key.jwk, ...options });
  return { client, guard };
}

/** The code of the refusal that a call ends with. */
export async function refusal(call) {
  const error = await call.then(
    () => assert.fail("it was paid"),
    (reason) => reason,
  );
  assert.ok(error instanceof PaymentRefused, `${error.stack}`);
  return error.code;
}
