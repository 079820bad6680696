// The official TypeScript clients, sent to sellers. Each line of standard input is a JSON object:
// {library: "fetch" | "axios", key, orders: [[order, url, milliseconds], …], together, guard}.
// It sends the orders one after the other, or concurrently if `together` is true. `guard` is missing
// or contains the options of a guard, with amounts as decimal texts. Prints a JSON array of
// [order, status or null, error, the guard's code] on one line. If `unresolved` is true, it prints
// the guard's payments without an answer and sends nothing.
import { createInterface } from "node:readline";
import { guarded, MEMORY } from "@tollgauge/guard";
import { wrapAxiosWithPayment } from "@x402/axios";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";

function guardOf(client, { policy, ...options }) {
  const amounts = Object.entries(policy).map(([name, value]) => [
    name,
    typeof value === "string" && /^\d+$/.test(value) ? BigInt(value) : value,
  ]);
  return guarded(client, { journal: MEMORY, ...options, policy: Object.fromEntries(amounts) });
}

function senderOf(client, guard, library) {
  if (library === "axios") {
    const plain = axios.create();
    const http = guard?.axios(wrapAxiosWithPayment, plain) ?? wrapAxiosWithPayment(plain, client);
    return async (url, headers, timeout) => {
      try {
        return (await http.get(url, { headers, timeout })).status;
      } catch (error) {
        if (error.response) return error.response.status;
        throw error;
      }
    };
  }
  const pay = guard?.fetch(wrapFetchWithPayment) ?? wrapFetchWithPayment(fetch, client);
  return async (url, headers, timeout) => {
    const signal = AbortSignal.timeout(timeout);
    const answer = await pay(url, { headers, signal });
    await answer.text();
    return answer.status;
  };
}

async function outcome(send, [order, url, timeout]) {
  try {
    return [order, await send(url, { "x-order": order }, timeout), "", ""];
  } catch (error) {
    const isRefused = ["PaymentRefused", "PaymentUnresolved"].includes(error?.name);
    const code = isRefused ? error.code : "";
    return [order, null, String(error?.message ?? error), code];
  }
}

async function answerTo({ key, library, orders, together, unresolved, ...settings }) {
  const client = new x402Client();
  client.setSpendControls(false);
  registerExactEvmScheme(client, { signer: privateKeyToAccount(key) });
  const guard = settings.guard && guardOf(client, settings.guard);
  if (unresolved) return guard.unresolved();
  const send = senderOf(client, guard, library);
  if (together) return Promise.all(orders.map((one) => outcome(send, one)));
  const outcomes = [];
  for (const order of orders) outcomes.push(await outcome(send, order));
  return outcomes;
}

const text = (_, value) => (typeof value === "bigint" ? String(value) : value);
for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(await answerTo(JSON.parse(line)), text)}\n`);
