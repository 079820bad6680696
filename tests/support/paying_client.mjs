// An official TypeScript client, sent to sellers one after the other. Reads a JSON object from
// standard input: {library: "fetch" | "axios", key, orders: [[order, url, milliseconds], …],
// together, guard}. It sends the orders one after the other, or concurrently if `together` is true.
// `guard` is missing or contains the options of a guard, with amounts as decimal texts. If
// `unresolved` is true, it prints the guard's payments without an answer and sends nothing.
// Prints a JSON array of [order, status or null, error, the guard's code].
import { readFileSync } from "node:fs";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

const settings = JSON.parse(readFileSync(0, "utf8"));
const client = new x402Client();
client.setSpendControls(false);
registerExactEvmScheme(client, { signer: privateKeyToAccount(settings.key) });

async function guardOf({ policy, ...options }) {
  const { guarded, MEMORY } = await import("@tollgauge/guard");
  const amounts = Object.entries(policy).map(([name, value]) => [
    name,
    typeof value === "string" && /^\d+$/.test(value) ? BigInt(value) : value,
  ]);
  return guarded(client, { journal: MEMORY, ...options, policy: Object.fromEntries(amounts) });
}

async function sender() {
  const guard = settings.guard && (await guardOf(settings.guard));
  if (settings.library === "axios") {
    const { default: axios } = await import("axios");
    const { wrapAxiosWithPayment } = await import("@x402/axios");
    const plain = axios.create();
    const http = guard
      ? guard.axios(wrapAxiosWithPayment, plain)
      : wrapAxiosWithPayment(plain, client);
    return async (url, headers, timeout) => {
      try {
        return (await http.get(url, { headers, timeout })).status;
      } catch (error) {
        if (error.response) return error.response.status;
        throw error;
      }
    };
  }
  const { wrapFetchWithPayment } = await import("@x402/fetch");
  const pay = guard ? guard.fetch(wrapFetchWithPayment) : wrapFetchWithPayment(fetch, client);
  return async (url, headers, timeout) => {
    const signal = AbortSignal.timeout(timeout);
    const answer = await pay(url, { headers, signal });
    await answer.text();
    return answer.status;
  };
}

if (settings.unresolved) {
  const texts = (_, value) => (typeof value === "bigint" ? String(value) : value);
  process.stdout.write(JSON.stringify((await guardOf(settings.guard)).unresolved(), texts));
  process.exit(0);
}

const send = await sender();

async function outcome([order, url, timeout]) {
  try {
    return [order, await send(url, { "x-order": order }, timeout), "", ""];
  } catch (error) {
    const isRefused = ["PaymentRefused", "PaymentUnresolved"].includes(error?.name);
    const code = isRefused ? error.code : "";
    return [order, null, String(error?.message ?? error), code];
  }
}

let outcomes = [];
if (settings.together) outcomes = await Promise.all(settings.orders.map(outcome));
else for (const order of settings.orders) outcomes.push(await outcome(order));
process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
