// An agent of the OpenAI Agents SDK that buys with a guard (its argument: a question).
// npm install ./tollgauge-guard-0.1.0.tgz @x402/core @x402/fetch @x402/evm viem @openai/agents
import * as agents from "@openai/agents";
import { guarded, openAiAgentsTools, paidTool } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const client = new x402Client();
registerExactEvmScheme(client, { signer: privateKeyToAccount(process.env.PRIVATE_KEY) });
const guard = guarded(client, {
  bundle: process.env.TOLLGAUGE_GUARD_BUNDLE,
  key: process.env.TOLLGAUGE_GUARD_KEY,
  policy: { maxCall: 50_000n, maxDay: 1_000_000n },
});
const tools = openAiAgentsTools(agents, paidTool(guard, wrapFetchWithPayment), []);
const model = process.env.MODEL ?? "gpt-4.1-mini";
const agent = new agents.Agent({ name: "Buyer", model, tools });
const { finalOutput } = await agents.run(agent, process.argv[2]);
console.log(finalOutput);
for (const { amount, resource, state } of guard.journal.payments()) {
  console.log(`paid ${amount} for ${resource}: ${state}`);
}
