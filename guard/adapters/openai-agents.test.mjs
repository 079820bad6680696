import * as agents from "@openai/agents";
import { openAiAgentsTools } from "@tollgauge/guard";
import OpenAI from "openai";
import { testAdapter } from "./shared-tests.mjs";

agents.setTracingDisabled(true);

testAdapter({
  name: "OpenAI Agents SDK",
  example: "openai_agents.mjs",
  tools: (paid, others) => openAiAgentsTools(agents, paid, others),
  run: (tools, baseURL) => {
    const client = new OpenAI({ baseURL, apiKey: "none" });
    const model = new agents.OpenAIResponsesModel(client, "scripted");
    return agents.run(new agents.Agent({ name: "Buyer", model, tools }), "Buy.");
  },
  call: (tools, input) => tools.at(-1).invoke(new agents.RunContext(), JSON.stringify(input)),
  other: (name) => {
    const parameters = { type: "object", properties: {}, additionalProperties: true };
    const execute = async () => "";
    return [agents.tool({ name, description: "", parameters, strict: false, execute })];
  },
});
