// Cloudflare Agents: the example in workerd with a journal in a Durable Object, and the MCP client in
// place of withX402Client.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { AdapterError, cloudflareMcpClient, PaymentRefused } from "@tollgauge/guard";
import { privateKeyToAccount } from "viem/accounts";
import { assertSafe, hostileCalls, openGuard, PRIVATE_KEY, startWorld } from "./world.mjs";

const FOLDER = join(import.meta.dirname, "cloudflare");
const require = createRequire(join(FOLDER, "package.json"));
const { build } = require("esbuild");
const { Miniflare } = require("miniflare");
const { withX402, withX402Client } = await import(require.resolve("agents/x402"));
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { InMemoryTransport } = require("@modelcontextprotocol/sdk/inMemory.js");
const STORAGE = join(FOLDER, "node_modules/.storage");
const PAYEE = "0x209693bc6afc0c5328ba36faf03c514ef312287c";

let world;
let bundle;
let script;

/** Serves the bundle of the world, and a facilitator that settles everything. */
async function serve(request, response) {
  const { TOLLGAUGE_GUARD_BUNDLE: path } = world;
  if (request.url === "/trust/bundle") {
    response.setHeader("Tollgauge-Signature", readFileSync(`${path}.jws`, "utf8").trim());
    return response.end(readFileSync(path));
  }
  const kinds = [{ x402Version: 2, scheme: "exact", network: "eip155:8453" }];
  const answers = {
    "/supported": { kinds, extensions: [], signers: {} },
    "/verify": { isValid: true, payer: privateKeyToAccount(PRIVATE_KEY).address },
    "/settle": { success: true, transaction: `0x${"ab".repeat(32)}`, network: "eip155:8453" },
  };
  const answer = answers[request.url];
  response.writeHead(answer === undefined ? 404 : 200, { "content-type": "application/json" });
  return response.end(JSON.stringify(answer ?? {}));
}

const server = createServer(serve);
before(async () => {
  rmSync(STORAGE, { recursive: true, force: true });
  world = await startWorld();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  bundle = `http://127.0.0.1:${server.address().port}/trust/bundle`;
  const { outputFiles } = await build({
    entryPoints: [join(import.meta.dirname, "../examples/cloudflare_agent.mjs")],
    ...{ bundle: true, write: false, format: "esm", target: "es2022", conditions: ["workerd"] },
    ...{ external: ["cloudflare:*"], nodePaths: [join(FOLDER, "node_modules")], platform: "node" },
    // As wrangler does for packages that require modules of Node.
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire("/");' },
  });
  script = outputFiles[0].text;
});
after(async () => {
  server.close();
  rmSync(STORAGE, { recursive: true, force: true });
  await world.close();
});

function startAgent() {
  const flare = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: script }],
    ...{ compatibilityDate: "2025-09-15", compatibilityFlags: ["nodejs_compat"] },
    ...{ cf: false, durableObjectsPersist: STORAGE },
    durableObjects: { BUYER: { className: "Buyer", useSQLite: true } },
    bindings: { ...world.environment, TOLLGAUGE_GUARD_BUNDLE: bundle },
  });
  const call = async (input) => {
    const body = JSON.stringify(input);
    const answer = await flare.dispatchFetch("http://agent.local/", { method: "POST", body });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    return JSON.parse(text);
  };
  return { call, stop: () => flare.dispose() };
}

test("Cloudflare: an agent pays a good endpoint, is refused at a bad one, and repeats nothing", async () => {
  const first = startAgent();
  try {
    const { result } = await first.call({ url: `${world.seller}/good` });
    assert.match(result.body ?? JSON.stringify(result), /sunny/);
    const refused = await first.call({ url: `${world.seller}/bad` });
    assert.deepEqual(refused.result, { error: "payment-refused", code: "avoid" });
    await world.look({ fails: true });
    assert.equal((await first.call({ url: `${world.seller}/good?2` })).result.status, 500);
  } finally {
    await first.stop();
  }
  // The object is started again, with the storage that the first one left.
  const second = startAgent();
  try {
    await world.look();
    const { result, payments } = await second.call({ url: `${world.seller}/good?2` });
    assert.equal(result.status, 200);
    assert.deepEqual(payments.map(({ amount, state }) => [amount, state]), [
      ["5000", "delivered"],
      ["5000", "delivered"],
    ]);
    assert.equal((await world.look()).payments.length, 3);
  } finally {
    await second.stop();
  }
});

test("Cloudflare: none of 200 arguments changes a decision", async () => {
  const agent = startAgent();
  try {
    const before = (await world.look()).payments.length;
    for (const input of hostileCalls(world)) {
      const { result } = await agent.call(input ?? null);
      assertSafe(JSON.stringify(result));
    }
    assert.equal((await world.look()).payments.length, before);
  } finally {
    await agent.stop();
  }
});

/** An MCP server with a paid tool of the agents package, and a client that is connected to it. */
async function connect(recipient = PAYEE) {
  const facilitator = { url: bundle.replace("/trust/bundle", "") };
  const tools = new McpServer({ name: "tools", version: "1" });
  const paying = withX402(tools, { network: "base", recipient, facilitator });
  const deliver = () => ({ content: [{ type: "text", text: "sunny" }] });
  paying.paidTool("weather", "Weather", 0.005, {}, {}, deliver);
  const client = new Client({ name: "agent", version: "1" });
  const [own, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([tools.connect(other), client.connect(own)]);
  return client;
}

const call = (client) => client.callTool({ name: "weather", arguments: {} });

test("Cloudflare: a paid tool of withX402 is paid through the guard", async () => {
  const guard = openGuard(world);
  const client = cloudflareMcpClient(guard, await connect(), `${world.seller}/mcp`);
  const { content } = await call(client);
  assert.equal(content[0].text, "sunny");
  assert.deepEqual(guard.journal.payments().map(({ state, amount }) => [state, amount]), [
    ["delivered", "5000"],
  ]);
});

test("Cloudflare: a paid tool with another payTo is refused", async () => {
  const guard = openGuard(world);
  const client = await connect(`0x${"66".repeat(20)}`);
  cloudflareMcpClient(guard, client, `${world.seller}/mcp`);
  await assert.rejects(call(client), (error) => error instanceof PaymentRefused && error.code === "payto-unknown");
  assert.deepEqual(guard.journal.payments(), []);
});

test("Cloudflare: withX402Client is rejected before and after the guard", async () => {
  const account = privateKeyToAccount(PRIVATE_KEY);
  const paying = withX402Client(await connect(), { account, network: "base" });
  assert.throws(() => cloudflareMcpClient(openGuard(world), paying, null), AdapterError);
  const client = cloudflareMcpClient(openGuard(world), await connect(), null);
  assert.throws(() => withX402Client(client, { account, network: "base" }), TypeError);
});
