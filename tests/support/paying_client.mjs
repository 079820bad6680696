// An official TypeScript client, sent to sellers one after the other. Reads a JSON object from
// standard input: {library: "fetch" | "axios", key, milliseconds, orders: [[order, url], …], guard},
// where `guard` is missing or the options of a guard, with money as decimal texts.
// Prints a JSON array of [order, status or null, why it gave up, the guard's code].
import { readFileSync } from "node:fs";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

const settings = JSON.parse(readFileSync(0, "utf8"));
const client = new x402Client();
client.setSpendControls(false);
registerExactEvmScheme(client, { signer: privateKeyToAccount(settings.key) });

async function guardOf({ policy, ...options }) {
  const { guarded } = await import("@tollgauge/guard");
  const amounts = Object.entries(policy).map(([name, value]) => [
    name,
    typeof value === "string" && /^\d+$/.test(value) ? BigInt(value) : value,
  ]);
  return guarded(client, { ...options, policy: Object.fromEntries(amounts) });
}

async function sender() {
  const guard = settings.guard && (await guardOf(settings.guard));
  if (settings.library === "axios") {
    const { default: axios } = await import("axios");
    const { wrapAxiosWithPayment } = await import("@x402/axios");
    const plain = axios.create({ timeout: settings.milliseconds });
    const http = guard
      ? guard.axios(wrapAxiosWithPayment, plain)
      : wrapAxiosWithPayment(plain, client);
    return async (url, headers) => {
      try {
        return (await http.get(url, { headers })).status;
      } catch (error) {
        if (error.response) return error.response.status;
        throw error;
      }
    };
  }
  const { wrapFetchWithPayment } = await import("@x402/fetch");
  const pay = guard ? guard.fetch(wrapFetchWithPayment) : wrapFetchWithPayment(fetch, client);
  return async (url, headers) => {
    const signal = AbortSignal.timeout(settings.milliseconds);
    const answer = await pay(url, { headers, signal });
    await answer.text();
    return answer.status;
  };
}

const send = await sender();
const outcomes = [];
for (const [order, url] of settings.orders) {
  try {
    outcomes.push([order, await send(url, { "x-order": order }), "", ""]);
  } catch (error) {
    const code = error?.name === "PaymentRefused" ? error.code : "";
    outcomes.push([order, null, String(error?.message ?? error), code]);
  }
}
process.stdout.write(JSON.stringify(outcomes));
process.exit(0);
