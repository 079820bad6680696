// The adapter for AgentKit, in place of its own x402ActionProvider.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { agentKitProviders, AdapterError, paidTool } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { base } from "viem/chains";
import "./only-loopback.mjs";
import { assertSafe, hostileCalls, openGuard, PRIVATE_KEY, runExample, startWorld } from "./world.mjs";

const require = createRequire(new URL("./agentkit/package.json", import.meta.url));
const kit = require("@coinbase/agentkit");
const { z } = require("zod");

let world;
before(async () => (world = await startWorld()));
after(() => world.close());

async function open(others = []) {
  const guard = openGuard(world);
  const account = privateKeyToAccount(PRIVATE_KEY);
  const transport = http("http://127.0.0.1:1");
  const wallet = createWalletClient({ account, chain: base, transport });
  const walletProvider = new kit.ViemWalletProvider(wallet);
  const paid = paidTool(guard, wrapFetchWithPayment);
  const actionProviders = agentKitProviders(kit, z, paid, others);
  const agent = await kit.AgentKit.from({ walletProvider, actionProviders });
  const actions = agent.getActions();
  const action = actions.find(({ name }) => name.endsWith("paid_request"));
  return { guard, actions, call: (input) => action.invoke(input) };
}

test("AgentKit: an action pays a good endpoint and is refused at a bad one", async () => {
  const { guard, call } = await open();
  assert.match(await call({ url: `${world.seller}/good` }), /sunny/);
  const refused = await call({ url: `${world.seller}/bad` });
  assert.deepEqual(JSON.parse(refused), { error: "payment-refused", code: "avoid" });
  assert.deepEqual((await world.look()).payments, ["/good"]);
  assert.equal(guard.journal.payments()[0].state, "delivered");
});

test("AgentKit: none of 200 arguments changes a decision", async () => {
  const { guard, call } = await open();
  const before = (await world.look()).payments.length;
  for (const input of hostileCalls(world)) {
    try {
      assertSafe(await call(input));
    } catch (error) {
      if (error.name !== "ZodError") throw error; // AgentKit validates the arguments itself
    }
  }
  assert.equal((await world.look()).payments.length, before);
  assert.equal(guard.journal.payments().length, 0);
});

test("AgentKit: its own x402 provider is rejected, others are kept", async () => {
  await assert.rejects(open([kit.x402ActionProvider()]), AdapterError);
  const { actions } = await open([kit.walletActionProvider()]);
  assert.ok(actions.length > 1);
});

test("AgentKit: the example runs", async () => {
  const printed = await runExample(world, "agentkit.mjs", "agentkit", `${world.seller}/good?example`);
  assert.match(printed, /sunny/);
  assert.match(printed, /good: delivered/);
});
