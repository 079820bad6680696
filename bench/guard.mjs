// The cost of the TypeScript guard per call. bench/guard.py starts it and describes the measurement.
// Usage: node guard.mjs BUNDLE KEY RECORDS CALLS PAY_TO PRIVATE_KEY. Prints one JSON object.
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { Bundle, guarded } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const [bundle, key, records, calls, payTo, privateKey] = process.argv.slice(2);
const WARM_UP = 20;

async function seller(request) {
  if (request.headers.has("payment-signature")) return answer(request, "{}", { status: 200 });
  const offer = {
    scheme: "exact",
    network: "eip155:8453",
    amount: "10000",
    asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
    payTo,
    maxTimeoutSeconds: 60,
    extra: { name: "USD Coin", version: "2" },
  };
  const document = { x402Version: 2, resource: { url: request.url }, accepts: [offer] };
  const header = Buffer.from(JSON.stringify(document)).toString("base64");
  return answer(request, "{}", { status: 402, headers: { "payment-required": header } });
}

// A response with a URL, like a response from the network.
function answer(request, body, init) {
  return Object.defineProperty(new Response(body, init), "url", { value: request.url });
}

function payer() {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: privateKeyToAccount(privateKey) });
  return client;
}

function median(values) {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

function load() {
  const body = readFileSync(bundle);
  const signature = readFileSync(`${bundle}.jws`, "utf8");
  globalThis.gc?.();
  const before = process.memoryUsage().rss;
  const began = performance.now();
  const loaded = Bundle.open(body, signature, JSON.parse(key));
  const seconds = (performance.now() - began) / 1000;
  globalThis.gc?.();
  return { load_s: seconds, mb_more: (process.memoryUsage().rss - before) / 1e6, loaded };
}

const { load_s, mb_more } = load();
const guard = guarded(payer(), {
  bundle,
  key: JSON.parse(key),
  journal: `${bundle}.journal.sqlite`,
  policy: { maxDay: 1_000_000_000n },
});
const fetches = {
  bare: wrapFetchWithPayment((input, init) => seller(new Request(input, init)), payer()),
  safe: guard.fetch(wrapFetchWithPayment, (input, init) => seller(new Request(input, init))),
};
const took = { bare: [], safe: [] };
const used = { bare: [], safe: [] };
for (let number = 0; number < WARM_UP + Number(calls); number += 1) {
  const url = `https://api-${(number * 7919) % Number(records)}.example.com/v1/paid`;
  for (const [name, fetchPaid] of Object.entries(fetches)) {
    const began = performance.now();
    const cpu = process.cpuUsage();
    const { status } = await fetchPaid(url);
    if (number >= WARM_UP) {
      const { user, system } = process.cpuUsage(cpu);
      took[name].push(performance.now() - began);
      used[name].push((user + system) / 1000);
    }
    if (status !== 200) throw new Error(`a call was answered with ${status}`);
  }
}
const [without, withIt] = [median(took.bare), median(took.safe)];
const said = {
  ms_more: withIt - without,
  cpu_ms_more: median(used.safe) - median(used.bare),
  ms_without: without,
  ms_with: withIt,
  load_s,
  mb_more,
};
process.stdout.write(`${JSON.stringify(said)}\n`);
