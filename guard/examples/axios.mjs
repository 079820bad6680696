// Pays each URL of the command line that the guard allows.
// npm install ./tollgauge-guard-0.1.0.tgz @x402/core @x402/axios @x402/evm axios viem
import { guarded, PaymentRefused } from "@tollgauge/guard";
import { wrapAxiosWithPayment } from "@x402/axios";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";

const client = new x402Client();
registerExactEvmScheme(client, { signer: privateKeyToAccount(process.env.PRIVATE_KEY) });
const guard = guarded(client, {
  bundle: process.env.TOLLGAUGE_GUARD_BUNDLE,
  key: process.env.TOLLGAUGE_GUARD_KEY,
});
const http = guard.axios(wrapAxiosWithPayment, axios.create());

for (const url of process.argv.slice(2)) {
  try {
    const answer = await http.get(url);
    console.log(`${answer.status} ${url}: ${JSON.stringify(answer.data)}`);
  } catch (error) {
    if (!(error instanceof PaymentRefused)) throw error;
    console.log(`refused ${url}: ${error.message}`);
  }
}
console.log(`${guard.unresolved().length} payments have no answer`);
