// One purchase with the guard @x402sentinel/x402 around the official fetch.
// The caller retries up to twice after an error or a response that is not a success.
import { setTimeout as sleep } from "node:timers/promises";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { MemoryStorage, standardPolicy, wrapWithSentinel } from "@x402sentinel/x402";
import { privateKeyToAccount } from "viem/accounts";

const { URL: url, PRIVATE_KEY, TIMEOUT_S } = process.env;
const client = new x402Client();
registerExactEvmScheme(client, { signer: privateKeyToAccount(PRIVATE_KEY) });
const pay = wrapWithSentinel(wrapFetchWithPayment(fetch, client), {
  agentId: "bench",
  budget: standardPolicy(),
  audit: { enabled: true, storage: new MemoryStorage() },
});

let last = "";
for (let tries = 0; tries < 3; tries += 1) {
  try {
    const answer = await pay(url, { signal: AbortSignal.timeout(Number(TIMEOUT_S) * 1000) });
    last = await answer.text();
    if (answer.ok) break;
  } catch (error) {
    last = String(error);
  }
  await sleep(300);
}
process.stdout.write(`${last}\n`, () => process.exit(0));
