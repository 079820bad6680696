// Buys one trust report with the official TypeScript x402 client, as an agent would.
// Usage: node scripts/buy-report.mjs BASE_URL RESOURCE PRIVATE_KEY
// Prints {status, report, receipt} as JSON; `receipt` is null when nothing was settled.
import { ExactEvmScheme } from "@x402/evm";
import { decodePaymentResponseHeader, wrapFetchWithPaymentFromConfig } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const [baseUrl, resource, key] = process.argv.slice(2);
const client = new ExactEvmScheme(privateKeyToAccount(key));
const pay = wrapFetchWithPaymentFromConfig(fetch, { schemes: [{ network: "eip155:8453", client }] });

const answer = await pay(new URL("/v1/x402-trust", baseUrl), {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ resource }),
});
const receipt = answer.headers.get("PAYMENT-RESPONSE");
console.log(
  JSON.stringify({
    status: answer.status,
    report: await answer.json(),
    receipt: receipt && decodePaymentResponseHeader(receipt),
  }),
);
