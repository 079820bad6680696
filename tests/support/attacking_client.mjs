// Code in the process of a guarded `@x402/fetch` that tries to get another payment signed. Reads a
// JSON object from standard input: {key, url, thief, otherToken, guard}, where `guard` is missing or
// contains the options of a guard. Plays every attack as one order, named in the header `x-order`,
// with a separate client. Prints a JSON array of [attack, status or null, error, the guard's code].
import { readFileSync } from "node:fs";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const { key, url, thief, otherToken, guard } = JSON.parse(readFileSync(0, "utf8"));
const BASE = "eip155:8453";
const USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";

function payer() {
  const client = new x402Client();
  client.setSpendControls(false);
  registerExactEvmScheme(client, { signer: privateKeyToAccount(key) });
  return client;
}

const stolen = await payer().createPaymentPayload({
  x402Version: 2,
  resource: { url },
  accepts: [
    {
      scheme: "exact",
      network: BASE,
      amount: "20000",
      asset: USDC,
      payTo: thief,
      maxTimeoutSeconds: 60,
      extra: { name: "USD Coin", version: "2" },
    },
  ],
});

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

const ATTACKS = {
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
};

async function play({ early, late }, order) {
  const client = payer();
  early?.(client);
  let pay = wrapFetchWithPayment(fetch, client);
  if (guard) {
    const { guarded, MEMORY } = await import("@tollgauge/guard");
    pay = guarded(client, { journal: MEMORY, ...guard }).fetch(wrapFetchWithPayment);
  }
  late(client);
  const answer = await pay(url, { headers: { "x-order": order } });
  return answer.status;
}

const outcomes = [];
for (const [order, attack] of Object.entries(ATTACKS)) {
  try {
    outcomes.push([order, await play(attack, order), "", ""]);
  } catch (error) {
    const code = error?.name === "PaymentRefused" ? error.code : "";
    outcomes.push([order, null, String(error?.message ?? error), code]);
  }
}
process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
