// One purchase with an official TypeScript client: `node official.mjs fetch|axios [guard]`.
// The caller retries up to twice after an error or a response that is not a success.
import { setTimeout as sleep } from "node:timers/promises";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

const TRIES = 3;
const PAUSE_MS = 300;
const { URL: url, PRIVATE_KEY, TIMEOUT_S, NODE_URL } = process.env;
const timeout = Number(TIMEOUT_S) * 1000;
const [library, option] = process.argv.slice(2);
const client = new x402Client();
registerExactEvmScheme(client, { signer: privateKeyToAccount(PRIVATE_KEY) });

async function openGuard() {
  if (option !== "guard") return null;
  const { guarded, MEMORY } = await import("@tollgauge/guard");
  return guarded(client, {
    bundle: process.env.TOLLGAUGE_GUARD_BUNDLE,
    key: process.env.TOLLGAUGE_GUARD_KEY,
    journal: MEMORY,
    nodes: { "eip155:8453": NODE_URL },
  });
}

async function buyer(guard) {
  if (library === "axios") {
    const { default: axios } = await import("axios");
    const { wrapAxiosWithPayment } = await import("@x402/axios");
    const plain = axios.create();
    const http = guard ? guard.axios(wrapAxiosWithPayment, plain) : wrapAxiosWithPayment(plain, client);
    return async () => {
      const answer = await http.get(url, { timeout, responseType: "text" });
      return { isGood: true, text: answer.data };
    };
  }
  const { wrapFetchWithPayment } = await import("@x402/fetch");
  const pay = guard ? guard.fetch(wrapFetchWithPayment) : wrapFetchWithPayment(fetch, client);
  return async () => {
    const answer = await pay(url, { signal: AbortSignal.timeout(timeout) });
    return { isGood: answer.ok, text: await answer.text() };
  };
}

const buy = await buyer(await openGuard());
let last = "";
for (let tries = 0; tries < TRIES; tries += 1) {
  try {
    const { isGood, text } = await buy();
    last = text;
    if (isGood) break;
  } catch (error) {
    last = String(error);
  }
  await sleep(PAUSE_MS);
}
process.stdout.write(`${last}\n`, () => process.exit(0));
