import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { vercelTools } from "@tollgauge/guard";
import * as ai from "ai";
import { testAdapter } from "./shared-tests.mjs";

testAdapter({
  name: "Vercel AI SDK",
  example: "vercel_ai.mjs",
  tools: (paid, others) => vercelTools(ai, paid, Object.assign({}, others)),
  run: (tools, baseURL) => {
    const model = createOpenAICompatible({ name: "scripted", baseURL })("scripted");
    return ai.generateText({ model, tools, prompt: "Buy.", stopWhen: ai.stepCountIs(5) });
  },
  call: (tools, input) => tools.paid_request.execute(input, { toolCallId: "1", messages: [] }),
  other: (name) => ({ [name]: ai.tool({ inputSchema: ai.jsonSchema({ type: "object" }) }) }),
});
