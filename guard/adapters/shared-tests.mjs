// The tests that every adapter in TypeScript passes.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AdapterError, paidTool } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { assertSafe, hostileCalls, openGuard, runExample, startWorld } from "./world.mjs";

/**
 * `tools(paid, others)` is the function under test, `run(tools, modelUrl)` an agent, `call(tools,
 * input)` one call of the tool as the framework makes it, `other(name)` another tool.
 */
export function testAdapter({ name, tools, run, call, other, example }) {
  let world;
  before(async () => (world = await startWorld()));
  after(() => world.close());

  function open(others = []) {
    const guard = openGuard(world);
    return { guard, list: tools(paidTool(guard, wrapFetchWithPayment), others) };
  }

  test(`${name}: an agent pays a good endpoint and is refused at a bad one`, async () => {
    const { guard, list } = open();
    await world.script([{ url: `${world.seller}/good` }, { url: `${world.seller}/bad` }]);
    await run(list, world.model);
    const { payments, results, tools: seen } = await world.look();
    assert.deepEqual(payments, ["/good"]);
    assert.match(results[0], /sunny/);
    assert.match(results[1], /payment-refused/);
    assert.match(results[1], /avoid/);
    results.forEach(assertSafe);
    const [{ function: described = seen[0] }] = seen;
    const choices = Object.keys(described.parameters.properties);
    assert.deepEqual(choices.sort(), ["body", "headers", "method", "url"]);
    assert.deepEqual(guard.journal.payments().map(({ state }) => state), ["delivered"]);
  });

  test(`${name}: none of 200 arguments changes a decision`, async () => {
    const { guard, list } = open();
    const before = (await world.look()).payments.length;
    for (const input of hostileCalls(world)) {
      try {
        assertSafe(JSON.stringify((await call(list, input)) ?? null));
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error; // else the framework's validation
      }
    }
    assert.equal((await world.look()).payments.length, before);
    assert.equal(guard.journal.payments().length, 0);
    assert.match(JSON.stringify(await call(list, { url: `${world.seller}/good` })), /sunny/);
  });

  test(`${name}: an unresolved payment reaches the model as data`, async () => {
    const { list } = open();
    const input = { url: `${world.seller}/good?${name.length}` };
    await world.look({ fails: true });
    const first = JSON.stringify(await call(list, input));
    await world.look({ fails: true, moves: true });
    const second = JSON.stringify(await call(list, input));
    await world.look();
    assert.match(first, /500/);
    assert.match(second, /payment-unresolved/);
    assert.match(second, /handle/);
    assertSafe(first + second);
  });

  test(`${name}: another tool that pays is rejected, others are kept`, () => {
    for (const payer of ["x402", "make_http_request_with_x402", "pay_402"]) {
      assert.throws(() => open(other(payer)), AdapterError);
    }
    assert.throws(() => open(other("paid_request")), /registered already/);
    assert.ok(open(other("search")).list);
  });

  test(`${name}: the example runs`, async () => {
    await world.script([{ url: `${world.seller}/good?example` }]);
    const printed = await runExample(world, example);
    assert.match(printed, /I have finished\./);
    assert.match(printed, /good: delivered/);
  });
}
