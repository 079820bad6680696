import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DEFAULT_POLICY, decide, policyOf, readOffer, readRecord } from "@tollgauge/guard";
import fc from "./support/properties.mjs";

const cases = new URL("../../cases/decisions.json", import.meta.url);
const table = JSON.parse(readFileSync(cases, "utf8"));
const MONEY = ["maxCall", "maxHostDay", "maxDay", "unknownMax", "priceFactor"];

function policyFrom({ pins = {}, ...fields }) {
  const money = MONEY.filter((name) => name in fields).map((name) => [name, BigInt(fields[name])]);
  const pinned = Object.entries(pins).map(([host, { maxAmount, ...pin }]) => [
    host,
    { ...pin, maxAmount: BigInt(maxAmount) },
  ]);
  return policyOf({ ...fields, ...Object.fromEntries(money), pins: Object.fromEntries(pinned) });
}

function decided(one) {
  const merged = { ...table.defaults, ...one };
  const offer = { ...table.defaults.offer, ...one.offer };
  for (const name of one.without ?? []) delete offer[name];
  const { hostDay, day, repeats } = { ...table.defaults.spent, ...one.spent };
  return decide(
    readOffer(offer, merged.resourceUrl, merged.x402Version),
    {
      requestUrl: merged.requestUrl,
      record: merged.record === null ? null : readRecord(merged.record),
      inherited: (merged.inherited ?? []).map(readRecord),
      bundleAsOf: merged.bundleAsOf,
      spent: { hostDay: BigInt(hostDay), day: BigInt(day), repeats },
      now: merged.now,
    },
    policyFrom({ ...table.defaults.policy, ...one.policy }),
  );
}

for (const one of table.cases) {
  test(`decision: ${one.name}`, () => {
    const { decision, code = null, warning = null } = decided(one);
    const expected = { decision: one.decision, code: one.code, warning: one.warning ?? null };
    assert.deepEqual({ decision, code, warning }, expected);
  });
}

const URL_ASKED = table.defaults.requestUrl;
const RECORD = readRecord(table.defaults.record);

function situation(changes = {}) {
  const spent = { hostDay: 0n, day: 0n, repeats: 0 };
  const { now, bundleAsOf } = table.defaults;
  return { requestUrl: URL_ASKED, record: RECORD, bundleAsOf, spent, now, ...changes };
}

/** Values that are nearly right are more likely to slip through than random ones. */
const nearly = (value) =>
  fc.oneof({ weight: 3, arbitrary: fc.constant(value) }, fc.jsonValue(), fc.string());
const offers = fc.record(
  {
    scheme: nearly("exact"),
    network: nearly("eip155:8453"),
    asset: nearly(table.defaults.offer.asset),
    amount: fc.oneof(
      fc.bigInt({ min: -5n, max: 2n ** 260n }).map(String),
      fc.nat(20_000).map(String),
      fc.jsonValue(),
    ),
    payTo: nearly(table.defaults.offer.payTo),
    maxTimeoutSeconds: fc.oneof(fc.integer(), fc.nat(4000), fc.jsonValue()),
    extra: nearly({}),
  },
  { requiredKeys: [] },
);
const spendings = fc.record({
  hostDay: fc.bigInt({ min: 0n, max: 6_000_000n }),
  day: fc.bigInt({ min: 0n, max: 25_000_000n }),
  repeats: fc.nat(4),
});
const ages = fc.option(fc.integer({ min: -3600, max: 10 * 24 * 3600 }));

test("whatever is offered, nothing is thrown, and nothing is allowed above a limit", () => {
  fc.assert(
    fc.property(
      fc.oneof(offers, fc.jsonValue()),
      nearly(URL_ASKED),
      nearly(URL_ASKED),
      spendings,
      ages,
      (entry, resourceUrl, requestUrl, spent, age) => {
        const bundleAsOf = age === null ? null : table.defaults.now - age;
        const decision = decide(
          readOffer(entry, resourceUrl),
          situation({ requestUrl, bundleAsOf, spent }),
          DEFAULT_POLICY,
        );
        if (decision.decision === "refuse") return;
        const { amount, payTo, timeout } = decision.terms;
        assert.equal(String(amount), entry.amount);
        assert.equal(payTo, entry.payTo.toLowerCase());
        assert.ok(amount > 0n && amount <= DEFAULT_POLICY.maxCall);
        assert.ok(
          spent.hostDay + amount <= DEFAULT_POLICY.maxHostDay &&
            spent.day + amount <= DEFAULT_POLICY.maxDay,
        );
        assert.ok(
          timeout > 0 &&
            timeout <= DEFAULT_POLICY.maxTimeoutSeconds &&
            spent.repeats < 3 &&
            age !== null,
        );
      },
    ),
    { numRuns: 1000 },
  );
});

test("what is allowed at a price is allowed at every lower one", () => {
  const at = (amount, changes) =>
    decide(
      readOffer({ ...table.defaults.offer, amount: String(amount) }, URL_ASKED),
      situation(changes),
      DEFAULT_POLICY,
    ).decision;
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 30_000 }),
      fc.integer({ min: 1, max: 30_000 }),
      fc.boolean(),
      ages,
      spendings,
      (price, less, isKnown, age, spent) => {
        const changes = {
          record: isKnown ? RECORD : null,
          bundleAsOf: age === null ? null : table.defaults.now - age,
          spent,
        };
        fc.pre(less < price && at(price, changes) === "allow");
        assert.equal(at(less, changes), "allow");
      },
    ),
    { numRuns: 200 },
  );
});

for (const wrong of [
  { maxDay: 5 },
  { maxDay: -1n },
  { maxRepeats: 1.5 },
  { minGrade: "E" },
  { unknown: "allow" },
  { maxday: 1n },
  { failOpen: "false" },
  { failOpen: 0 },
  { pins: [] },
  { pins: null },
  { pins: { "api.example.com": { maxAmount: 5 } } },
  { pins: { "api.example.com": { maxAmount: 5n, facilitator: "0x1" } } },
  { assets: undefined },
  { assets: [{ network: "eip155:8453", address: `0x${"1".repeat(40)}` }] },
  { assets: [{ network: "eip155:8453", address: "0x1", decimals: 6 }] },
  { assets: [{ network: "base", address: `0x${"1".repeat(40)}`, decimals: 6 }] },
  { assets: [{ network: "eip155:8453", address: `0x${"1".repeat(40)}`, decimals: -1 }] },
]) {
  test(`a policy of ${Object.keys(wrong)[0]} ${String(Object.values(wrong)[0])} is an error`, () => {
    assert.throws(() => policyOf(wrong), TypeError);
  });
}
