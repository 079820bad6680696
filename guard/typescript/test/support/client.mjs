// The official client, with a guard whose bundle contains a test's records of its sellers.
import assert from "node:assert/strict";
import { guarded, MEMORY, PaymentRefused } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";
import { newKey, signedBundle } from "./bundles.mjs";

const account = privateKeyToAccount(`0x${"11".repeat(32)}`);
export const key = newKey();

/** A wallet that counts its signatures; `delay` is awaited before each signature. */
export function countingSigner(secret = "11", delay = async () => undefined) {
  const wallet = privateKeyToAccount(`0x${secret.repeat(32)}`);
  const counting = {
    address: wallet.address,
    signatures: 0,
    signTypedData: async (message) => {
      await delay();
      counting.signatures += 1;
      return wallet.signTypedData(message);
    },
  };
  return counting;
}

export function signingClient(signer = account) {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer });
  return client;
}

/** A client that signs, and its guard. `earlier` registers hooks before the guard's. */
export function paying(rows, { earlier = () => undefined, signer = account, ...options } = {}) {
  const client = signingClient(signer);
  earlier(client);
  const bundle = signedBundle(rows, key);
  const guard = guarded(client, { bundle, key: key.jwk, journal: MEMORY, ...options });
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
