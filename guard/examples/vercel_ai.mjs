// An agent of the Vercel AI SDK that buys with a guard (its argument: a question).
// npm install ./tollgauge-guard-0.1.0.tgz @x402/core @x402/fetch @x402/evm viem ai @ai-sdk/openai-compatible
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { guarded, paidTool, vercelTools } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import * as ai from "ai";
import { privateKeyToAccount } from "viem/accounts";

const { PRIVATE_KEY, OPENAI_API_KEY: apiKey, OPENAI_BASE_URL, MODEL = "gpt-4.1-mini" } = process.env;
const client = new x402Client();
registerExactEvmScheme(client, { signer: privateKeyToAccount(PRIVATE_KEY) });
const guard = guarded(client, {
  bundle: process.env.TOLLGAUGE_GUARD_BUNDLE,
  key: process.env.TOLLGAUGE_GUARD_KEY,
  policy: { maxCall: 50_000n, maxDay: 1_000_000n },
});
const baseURL = OPENAI_BASE_URL ?? "https://api.openai.com/v1";
const model = createOpenAICompatible({ name: "openai", baseURL, apiKey })(MODEL);
const tools = vercelTools(ai, paidTool(guard, wrapFetchWithPayment), {});
const stopWhen = ai.stepCountIs(10);
const { text } = await ai.generateText({ model, tools, stopWhen, prompt: process.argv[2] });
console.log(text);
for (const { amount, resource, state } of guard.journal.payments()) {
  console.log(`paid ${amount} for ${resource}: ${state}`);
}
