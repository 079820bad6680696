// Pays each URL of the command line that the guard allows.
// npm install ./tollgauge-guard-0.1.0.tgz @x402/core @x402/fetch @x402/evm viem
import { guarded, PaymentRefused } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const client = new x402Client();
registerExactEvmScheme(client, { signer: privateKeyToAccount(process.env.PRIVATE_KEY) });
const guard = guarded(client, {
  bundle: process.env.TOLLGAUGE_GUARD_BUNDLE,
  key: process.env.TOLLGAUGE_GUARD_KEY,
});
const fetchPaid = guard.fetch(wrapFetchWithPayment);

for (const url of process.argv.slice(2)) {
  try {
    const answer = await fetchPaid(url);
    console.log(`${answer.status} ${url}: ${await answer.text()}`);
  } catch (error) {
    if (!(error instanceof PaymentRefused)) throw error;
    console.log(`refused ${url}: ${error.message}`);
  }
}
console.log(`${guard.unresolved().length} payments have no answer`);
