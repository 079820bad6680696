// The TypeScript MCP SDK as a client: lists the tools, calls a free one, requests the terms of a paid
// one and reads a watch, over each of the given transports. A transport is a JSON array with a URL or
// with a command and its arguments: node mcp_client.mjs '["http://…"]' '["tollgauge", "mcp"]'.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport, getDefaultEnvironment } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const ours = Object.entries(process.env).filter(([name]) => name.startsWith("TOLLGAUGE_"));

async function callTools([target, ...args]) {
  const transport = target.startsWith("http://")
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({
        command: target,
        args,
        env: { ...getDefaultEnvironment(), ...Object.fromEntries(ours) },
      });

  const client = new Client({ name: "a-stranger", version: "1.0.0" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const free = await client.callTool({ name: "x402_ecosystem_stats", arguments: {} });
  const paid = await client.callTool({
    name: "x402_trust_score",
    arguments: { resource: "https://api.example.com/weather" },
  });
  const refused = await client.callTool({
    name: "x402_trust_score",
    arguments: { resource: "https://api.example.com/weather" },
    _meta: { "x402/payment": { x402Version: 1 } },
  });
  const watched = await client.callTool({
    name: "x402_watch_events",
    arguments: {
      watch_id: process.env.WATCH_ID ?? "wat_000000000000000000000000",
      secret: process.env.WATCH_SECRET ?? "whsec_nobody",
    },
  });
  let unknown;
  try {
    await client.callTool({ name: "x402_drain_wallet", arguments: {} });
  } catch (error) {
    unknown = error.code;
  }
  await client.close();
  return {
    server: client.getServerVersion(),
    tools: tools.map((tool) => tool.name),
    free,
    paid,
    refused,
    watched,
    unknown,
  };
}

const seen = [];
for (const transport of process.argv.slice(2)) seen.push(await callTools(JSON.parse(transport)));
console.log(JSON.stringify(seen));
