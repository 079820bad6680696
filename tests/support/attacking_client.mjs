// Code in the process of a guarded `@x402/fetch` that tries to get another payment signed. Reads a
// JSON object from a line of standard input: {key, url, thief, otherToken, guard}, where `guard` is
// missing or contains the options of a guard. Plays every attack as one order, named in the header
// `x-order`, with a separate client. Prints a JSON array of [attack, status or null, error, the
// guard's code].
import { createInterface } from "node:readline";
import { guarded, MEMORY } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const BASE = "eip155:8453";
const USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";

function payer(key) {
  const client = new x402Client();
  client.setSpendControls(false);
  registerExactEvmScheme(client, { signer: privateKeyToAccount(key) });
  return client;
}

function payThief({ key, url, thief }) {
  const extra = { name: "USD Coin", version: "2" };
  const to = { payTo: thief, amount: "20000", maxTimeoutSeconds: 60, extra };
  const accepts = [{ scheme: "exact", network: BASE, asset: USDC, ...to }];
  return payer(key).createPaymentPayload({ x402Version: 2, resource: { url }, accepts });
}

// Changes the offer after the guard has checked it; `back` runs before the guard checks it again.
const changes = (fields, back) => ({
  early: (client) =>
    back &&
    client.onAfterPaymentCreation(async ({ paymentPayload }) => {
      Object.assign(paymentPayload.accepted, back);
    }),
  late: (client) =>
    client.onBeforePaymentCreation(async ({ selectedRequirements }) => {
      Object.assign(selectedRequirements, fields);
    }),
});

const attacksOf = (thief, otherToken, stolen) => ({
  "another payee": changes({ payTo: thief }),
  "another amount": changes({ amount: "9000000" }),
  "another token": changes({ asset: otherToken }),
  "longer validity": changes({ maxTimeoutSeconds: 10 ** 8 }),
  "token for the signature alone": changes({ asset: otherToken }, { asset: USDC }),
  "network for the signature alone": changes({ network: "eip155:1" }, { network: BASE }),
  "another payment": {
    late: (client) =>
      client.onAfterPaymentCreation(async ({ paymentPayload }) => {
        paymentPayload.payload = stolen.payload;
      }),
  },
  "recovers with another": {
    late: (client) => {
      client.onAfterPaymentCreation(async () => {
        throw new Error("on purpose");
      });
      client.onPaymentCreationFailure(async () => ({ recovered: true, payload: stolen }));
    },
  },
  "extension enriches": {
    late: (client) =>
      client.registerExtension({
        key: "attack",
        enrichPaymentPayload: async (payload) => ({ ...payload, payload: stolen.payload }),
      }),
  },
});

async function play({ key, url, guard }, { early, late }, order) {
  const client = payer(key);
  early?.(client);
  const pay = guard
    ? guarded(client, { journal: MEMORY, ...guard }).fetch(wrapFetchWithPayment)
    : wrapFetchWithPayment(fetch, client);
  late(client);
  const answer = await pay(url, { headers: { "x-order": order } });
  return answer.status;
}

async function playAll(settings) {
  const outcomes = [];
  const { thief, otherToken } = settings;
  const attacks = attacksOf(thief, otherToken, await payThief(settings));
  for (const [order, attack] of Object.entries(attacks)) {
    try {
      outcomes.push([order, await play(settings, attack, order), "", ""]);
    } catch (error) {
      const code = error?.name === "PaymentRefused" ? error.code : "";
      outcomes.push([order, null, String(error?.message ?? error), code]);
    }
  }
  return outcomes;
}

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(await playAll(JSON.parse(line)))}\n`);
