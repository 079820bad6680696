// The cost of the TypeScript guard per call. bench/guard.py starts it and describes the measurement.
// Usage: node guard.mjs BUNDLE KEY RECORDS CALLS PAYMENTS PAY_TO PRIVATE_KEY. Prints one JSON object.
// The journal `filled.sqlite` next to the bundle has PAYMENTS payments.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { DatabaseSync } from "node:sqlite";
import { Bundle, guarded } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { newCall } from "../guard/typescript/dist/call.js";
import { requestKey } from "../guard/typescript/dist/purchase-key.js";

const [bundle, key, records, calls, payments, payTo, privateKey] = process.argv.slice(2);
const WARM_UP = 20;
const OFFER = {
  scheme: "exact",
  network: "eip155:8453",
  amount: "10000",
  asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
  payTo,
  maxTimeoutSeconds: 60,
  extra: { name: "USD Coin", version: "2" },
};
const COMMITS = [
  "INSERT INTO payments (id, payload) VALUES (:id, NULL)",
  "UPDATE payments SET state = 'signed', payload = :payload WHERE id = :id",
  "UPDATE payments SET state = 'in-flight' WHERE id = :id",
  "UPDATE payments SET state = 'delivered', payload = NULL WHERE id = :id",
];
const PAYLOAD = "x".repeat(1000);

async function seller(request) {
  if (request.headers.has("payment-signature")) return answer(request, "{}", { status: 200 });
  const header = Buffer.from(JSON.stringify(asking(request.url))).toString("base64");
  return answer(request, "{}", { status: 402, headers: { "payment-required": header } });
}

function asking(url) {
  return { x402Version: 2, resource: { url }, accepts: [OFFER] };
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

function quantile(values, share) {
  return values.sort((a, b) => a - b)[Math.floor(values.length * share)];
}

function median(values) {
  return quantile(values, 0.5);
}

function urlOf(number) {
  return `https://api-${(number * 7919) % Number(records)}.example.com/v1/paid`;
}

/** Returns a function that makes the commits of a payment in a table without indexes. */
function bareCommits() {
  const rows = new DatabaseSync(join(dirname(bundle), "commits-typescript.sqlite"));
  rows.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
  rows.exec("PRAGMA wal_autocheckpoint = 4000");
  rows.exec("CREATE TABLE payments (id INTEGER PRIMARY KEY, state, payload)");
  const [begin, commit, ...steps] = ["BEGIN IMMEDIATE", "COMMIT", ...COMMITS].map((sql) => {
    const statement = rows.prepare(sql);
    statement.setAllowBareNamedParameters(true);
    return statement;
  });
  return (id) => {
    for (const step of steps) {
      begin.run();
      const isWithPayload = step.sourceSQL.includes(":payload");
      step.run(isWithPayload ? { id, payload: PAYLOAD } : { id });
      commit.run();
    }
  };
}

/** Measures decisions without a write, and with the reservation that follows them in a payment. */
async function decisions() {
  const filled = guarded(payer(), {
    bundle,
    key: JSON.parse(key),
    journal: join(dirname(bundle), "filled.sqlite"),
    policy: { maxDay: 10_000_000_000n },
  });
  const { address } = privateKeyToAccount(privateKey);
  const decided = [];
  const reserved = [];
  if (filled.journal.payments().length !== Number(payments)) throw new Error("the journal is not filled");
  for (let number = 0; number < WARM_UP + Number(calls); number += 1) {
    const url = urlOf(number);
    const now = filled.now();
    const key = requestKey("GET", url, () => null, new Uint8Array());
    const bundleNow = await filled.source.current(now);
    const call = Object.assign(newCall({}), { url, key, bundle: bundleNow, required: asking(url) });
    call.purchase = filled.judge.purchase(call);
    const began = performance.now();
    const decision = filled.judge.decide(call, filled.judge.offer(call, OFFER), false, now);
    const middle = performance.now();
    const { terms } = decision;
    if (decision.decision !== "allow") throw new Error(`a decision was ${decision.code}`);
    const row = filled.journal.reserve(call.purchase, terms, address.toLowerCase(), filled.policy, now);
    const ended = performance.now();
    filled.journal.change(row.id, "not-signed", now);
    if (number >= WARM_UP) {
      decided.push(middle - began);
      reserved.push(ended - began);
    }
  }
  filled.close();
  const both = (values) => [median(values), quantile(values, 0.99)];
  return { decision_ms: both(decided), reservation_ms: both(reserved) };
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
const commit = bareCommits();
const buy = (fetchPaid) => async (number) => {
  const { status } = await fetchPaid(urlOf(number));
  if (status !== 200) throw new Error(`a call was answered with ${status}`);
};
const steps = { bare: buy(fetches.bare), safe: buy(fetches.safe), commits: async (id) => commit(id) };
const took = { bare: [], safe: [], commits: [] };
const used = { bare: [], safe: [], commits: [] };
for (let number = 0; number < WARM_UP + Number(calls); number += 1) {
  for (const [name, step] of Object.entries(steps)) {
    const began = performance.now();
    const cpu = process.cpuUsage();
    await step(number);
    if (number >= WARM_UP) {
      const { user, system } = process.cpuUsage(cpu);
      took[name].push(performance.now() - began);
      used[name].push((user + system) / 1000);
    }
  }
}
const [without, withIt] = [median(took.bare), median(took.safe)];
const said = {
  ms_more: withIt - without,
  cpu_ms_more: median(used.safe) - median(used.bare),
  ms_without: without,
  ms_with: withIt,
  ms_commits: median(took.commits),
  cpu_ms_commits: median(used.commits),
  ...(await decisions()),
  load_s,
  mb_more,
};
process.stdout.write(`${JSON.stringify(said)}\n`);
