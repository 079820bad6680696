// An official TypeScript client, sent to sellers one after the other. Reads a JSON object from
// standard input: {library: "fetch" | "axios", key, milliseconds, orders: [[order, url], …]}.
// Prints a JSON array of [order, status or null, why it gave up].
import { readFileSync } from "node:fs";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

const settings = JSON.parse(readFileSync(0, "utf8"));
const client = new x402Client();
client.setSpendControls(false);
registerExactEvmScheme(client, { signer: privateKeyToAccount(settings.key) });

async function sender() {
  if (settings.library === "axios") {
    const { default: axios } = await import("axios");
    const { wrapAxiosWithPayment } = await import("@x402/axios");
    const http = wrapAxiosWithPayment(axios.create({ timeout: settings.milliseconds }), client);
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
  const pay = wrapFetchWithPayment(fetch, client);
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
    outcomes.push([order, await send(url, { "x-order": order }), ""]);
  } catch (error) {
    outcomes.push([order, null, String(error?.message ?? error)]);
  }
}
process.stdout.write(JSON.stringify(outcomes));
process.exit(0);
