// An AgentKit agent with an action that buys with a guard (its argument: a URL to buy from).
// npm install ./tollgauge-guard-0.1.0.tgz @x402/core @x402/fetch @x402/evm viem @coinbase/agentkit zod
import { AgentKit, customActionProvider, ViemWalletProvider } from "@coinbase/agentkit";
import { agentKitProviders, guarded, paidTool } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { base } from "viem/chains";
import { z } from "zod";

const account = privateKeyToAccount(process.env.PRIVATE_KEY);
const client = new x402Client();
registerExactEvmScheme(client, { signer: account });
const guard = guarded(client, {
  bundle: process.env.TOLLGAUGE_GUARD_BUNDLE,
  key: process.env.TOLLGAUGE_GUARD_KEY,
  policy: { maxCall: 50_000n, maxDay: 1_000_000n },
});
const paid = paidTool(guard, wrapFetchWithPayment);
const wallet = createWalletClient({ account, chain: base, transport: http(process.env.NODE_URL) });
const agent = await AgentKit.from({
  walletProvider: new ViemWalletProvider(wallet),
  actionProviders: agentKitProviders({ customActionProvider }, z, paid, []),
});
const [action] = agent.getActions(); // give all of them to your model
console.log(await action.invoke({ url: process.argv[2] }));
for (const { amount, resource, state } of guard.journal.payments()) {
  console.log(`paid ${amount} for ${resource}: ${state}`);
}
process.exit(0); // AgentKit keeps timers
