// The official MCP client, and a server whose tools ask to be paid.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { CallToolRequestSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Elicitation } from "@tollgauge/guard";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { offer, PAYEE, THIEF } from "./support/seller.mjs";

const SERVER = "https://tools.example.com/mcp";
const payments = [];
let client;

function asks(url, entry, isInText = false) {
  const required = { x402Version: 2, resource: { url }, accepts: [entry] };
  const content = [{ type: "text", text: JSON.stringify(required) }];
  return isInText
    ? { isError: true, content }
    : { isError: true, content, structuredContent: required };
}

/** A 402 as servers of Cloudflare Agents send it: they read the payment as a base64 text. */
function asksAsCloudflare(url, entry) {
  const required = { x402Version: 2, resource: { url }, accepts: [entry] };
  const content = [{ type: "text", text: JSON.stringify(required) }];
  return { isError: true, _meta: { "x402/error": required }, content };
}

const TOOLS = {
  free: () => ({ content: [{ type: "text", text: "free" }] }),
  broken: () => ({ isError: true, content: [{ type: "text", text: "broken" }] }),
  weather: () => asks("mcp://tool/weather", offer()),
  texts: () => asks("mcp://tool/texts", offer(), true),
  web: () => asks(SERVER, offer()),
  moved: () => asks("mcp://tool/moved", offer({ payTo: THIEF })),
  other: () => asks("mcp://tool/weather", offer({ amount: "2001" })),
  dear: () => asks("mcp://tool/dear", offer({ amount: "20000" })),
  worker: () => asksAsCloudflare("x402://worker", offer()),
  stranger: () => asksAsCloudflare("x402://worker", offer()),
  alias: () => asks("mcp://tool/weather", offer()),
};

before(async () => {
  const server = new Server({ name: "tools", version: "1" }, { capabilities: { tools: {} } });
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
    const payment = params._meta?.["x402/payment"];
    if (payment === undefined) return TOOLS[params.name](params);
    payments.push(payment);
    if (params.arguments.mood === "fail") throw new Error("the tool fails");
    if (params.arguments.mood === "break") return TOOLS.broken();
    if (params.arguments.mood === "ask again") return TOOLS[params.name](params);
    const receipt = { success: true, transaction: `0x${"ab".repeat(32)}`, network: "eip155:8453" };
    return {
      content: [{ type: "text", text: "delivered" }],
      _meta: { "x402/payment-response": receipt },
    };
  });
  client = new Client({ name: "agent", version: "1" });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(theirs), client.connect(ours)]);
});
after(() => client.close());
beforeEach(() => payments.splice(0));

const RECORDS = Object.keys(TOOLS).map((name) =>
  row(`${SERVER}#tool=${name}`, { payTo: [PAYEE] }),
);

function tools(server = SERVER, records = RECORDS) {
  const { guard } = paying(records);
  const callTool = guard.mcp(client, server);
  return { guard, call: (name, args = {}) => callTool({ name, arguments: args }) };
}

for (const name of ["weather", "texts", "web", "alias"]) {
  test(`the tool ${name} is paid`, async () => {
    const { guard, call } = tools();
    assert.equal((await call(name)).content[0].text, "delivered");
    assert.equal(payments[0].payload.authorization.to.toLowerCase(), PAYEE);
    assert.deepEqual(guard.unresolved(), []);
  });
}

test("a server of Cloudflare Agents gets the payment as a text", async () => {
  const { guard, call } = tools();
  assert.equal((await call("worker")).content[0].text, "delivered");
  const payload = JSON.parse(Buffer.from(payments[0], "base64"));
  assert.equal(payload.payload.authorization.to.toLowerCase(), PAYEE);
  assert.deepEqual(guard.unresolved(), []);
  assert.equal(await refusal(call("stranger")), "resource-mismatch");
});

test("the record of a tool counts for this tool only", async () => {
  const avoided = { recommendation: "avoid", grade: "F", payTo: [PAYEE] };
  const bad = [row(`${SERVER}#tool=weather`, avoided)];
  assert.equal(await refusal(tools(SERVER, bad).call("weather")), "avoid");
  const other = [row(`${SERVER}#tool=other%2Fname`, avoided)];
  assert.equal((await tools(SERVER, other).call("weather")).content[0].text, "delivered");
  const { guard } = paying(other);
  TOOLS["other/name"] = TOOLS.weather;
  const callTool = guard.mcp(client, SERVER);
  assert.equal(await refusal(callTool({ name: "other/name", arguments: {} })), "avoid");
});

test("a free tool, and one that fails, are as without the guard", async () => {
  const { call } = tools();
  assert.equal((await call("free")).content[0].text, "free");
  assert.equal((await call("broken")).content[0].text, "broken");
});

for (const [name, code] of [
  ["moved", "payto-unknown"],
  ["other", "resource-mismatch"],
]) {
  test(`the tool ${name} is refused: ${code}`, async () => {
    assert.equal(await refusal(tools().call(name)), code);
    assert.deepEqual(payments, []);
  });
}

test("a tool of a server without a record is paid up to a cent", async () => {
  assert.equal((await tools(null).call("weather")).content[0].text, "delivered");
});

test("a call that failed after its payment sends the same payment again", async () => {
  const { guard, call } = tools();
  const args = { mood: "fail" };
  for (let time = 0; time < 2; time += 1)
    await assert.rejects(call("weather", args), /the tool fails/);
  assert.deepEqual(payments[0], payments[1]);
  assert.equal(guard.unresolved()[0].nonce, payments[0].payload.authorization.nonce);
});

test("a tool whose result is an error after its payment is sent the same payment again", async () => {
  const { guard, call } = tools();
  for (let time = 0; time < 2; time += 1) {
    assert.equal((await call("weather", { mood: "break" })).isError, true);
  }
  assert.deepEqual(payments[0], payments[1]);
  assert.deepEqual(
    guard.unresolved().map(({ status }) => status),
    [500],
  );
});

test("a tool that asks again after its payment is unsettled", async () => {
  const { guard, call } = tools();
  assert.equal((await call("weather", { mood: "ask again" })).isError, true);
  assert.equal(guard.unresolved()[0].state, "open");
});

/** An MCP server whose tool pays with a guard, and a client whose user answers its questions. */
async function asking(answer) {
  const elicitation = new Elicitation();
  const { guard } = paying([], { ask: elicitation.ask });
  const callTool = guard.mcp(client, null);
  const server = new Server({ name: "agent", version: "1" }, { capabilities: { tools: {} } });
  server.setRequestHandler(CallToolRequestSchema, () =>
    elicitation.during(server, () => callTool({ name: "dear", arguments: {} })),
  );
  const capabilities = answer === null ? {} : { elicitation: {} };
  const user = new Client({ name: "user", version: "1" }, { capabilities });
  const asked = [];
  if (answer !== null) {
    user.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      asked.push(params.message);
      return answer;
    });
  }
  const [near, far] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(far), user.connect(near)]);
  return { asked, call: () => user.callTool({ name: "buy", arguments: {} }), close: () => user.close() };
}

for (const [name, answer, isPaid] of [
  ["allows it", { action: "accept", content: { allow: true } }, true],
  ["does not allow it", { action: "accept", content: { allow: false } }, false],
  ["declines", { action: "decline" }, false],
  ["cannot be asked", null, false],
]) {
  test(`a payment that needs consent is ${isPaid ? "made" : "refused"} if the user ${name}`, async (t) => {
    const { asked, call, close } = await asking(answer);
    t.after(close);
    if (isPaid) assert.equal((await call()).content[0].text, "delivered");
    else await assert.rejects(call(), /unknown-resource/);
    assert.equal(payments.length, isPaid ? 1 : 0);
    const prompt = `Pay $0.02 to ${PAYEE} at tool on eip155:8453? unknown-resource: `;
    for (const message of asked) assert.ok(message.startsWith(prompt), message);
    assert.equal(asked.length, answer === null ? 0 : 1);
  });
}
