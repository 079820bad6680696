// The TypeScript MCP SDK as a client: lists the tools, calls a free one, requests the terms
// of a paid one, reads a watch. Over HTTP: node mcp_client.mjs URL. Over stdio: node mcp_client.mjs COMMAND ARGUMENT...
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport, getDefaultEnvironment } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [target, ...args] = process.argv.slice(2);
const ours = Object.entries(process.env).filter(([name]) => name.startsWith("TOLLGAUGE_"));
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
console.log(
  JSON.stringify({
    server: client.getServerVersion(),
    tools: tools.map((tool) => tool.name),
    free,
    paid,
    refused,
    watched,
    unknown,
  }),
);
