// A paid tool on the TypeScript MCP SDK over streamable HTTP with TLS.
// node mcp_seller.mjs CERTIFICATE_AND_KEY TERMS; prints its port. `?json` answers without a stream.
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [certificate, terms] = process.argv.slice(2);
const pem = readFileSync(certificate);
const required = JSON.parse(terms);

function seller() {
  const server = new Server({ name: "seller", version: "1" }, { capabilities: { tools: {} } });
  const inputSchema = { type: "object", properties: { city: { type: "string" } } };
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [{ name: "weather", inputSchema }],
  }));
  server.setRequestHandler(CallToolRequestSchema, () => ({
    isError: true,
    structuredContent: required,
    content: [{ type: "text", text: JSON.stringify(required) }],
  }));
  return server;
}

const listener = createServer({ cert: pem, key: pem }, async (request, response) => {
  const enableJsonResponse = request.url.endsWith("?json");
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: undefined,
    enableJsonResponse,
  });
  await seller().connect(transport);
  await transport.handleRequest(request, response);
});
listener.listen(0, "127.0.0.1", () => console.log(listener.address().port));
