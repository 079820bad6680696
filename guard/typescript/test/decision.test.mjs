import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  CODES,
  DEFAULT_POLICY,
  decide,
  policyOf,
  readConduct,
  readOffer,
  readRecord,
} from "@tollgauge/guard";
import fc from "./support/properties.mjs";

const cases = new URL("../../cases/decide.json", import.meta.url);
const table = JSON.parse(readFileSync(cases, "utf8"));
const { defaults } = table;
const MONEY = Object.entries(DEFAULT_POLICY).filter(([, value]) => typeof value === "bigint");
const LIMITS = [...MONEY.map(([name]) => name), "maxSession", "maxLifetime"];

function policyFrom({ trust = {}, ...fields }) {
  const money = LIMITS.filter((name) => name in fields).map((name) => [name, BigInt(fields[name])]);
  const trusted = Object.entries(trust).map(([host, { max, ...rest }]) => [
    host,
    max === undefined ? rest : { ...rest, max: BigInt(max) },
  ]);
  return policyOf({ ...fields, ...Object.fromEntries(money), trust: Object.fromEntries(trusted) });
}

function spentOf({ losses, ...sums }) {
  const money = Object.entries(sums).map(([name, sum]) => [name, BigInt(sum)]);
  return { ...Object.fromEntries(money), losses };
}

function decided(one) {
  const merged = { ...defaults, ...one };
  const offer = { ...defaults.offer, ...one.offer };
  for (const name of one.without ?? []) delete offer[name];
  const { maxAmount, expectPayTo } = { ...defaults.call, ...one.call };
  const conduct = (row) => (row === null ? null : readConduct(row));
  const known = {
    record: merged.record === null ? null : readRecord(merged.record, merged.payTo),
    inherited: merged.inherited.map((row) => readRecord(row, merged.payTo)),
    host: conduct(merged.hostRecord),
    payee: conduct(merged.payToRecord),
    asOf: merged.bundleAsOf,
  };
  const asked = {
    url: merged.requestUrl,
    hops: merged.hops,
    maxAmount: maxAmount === null ? null : BigInt(maxAmount),
    expectPayTo,
    isStopped: merged.stopped,
  };
  return decide(
    known,
    readOffer(offer, merged.resourceUrl, merged.x402Version, merged.extensions, merged.contradicted),
    asked,
    policyFrom({ ...defaults.policy, ...one.policy }),
    merged.now,
    spentOf({ ...defaults.spent, ...one.spent }),
  );
}

/** Codes that depend on earlier payments or on the signature. */
const LATER = ["pay-again", "sdk-refused", "paid-already", "signed-differs", "payment-unresolved"];

test("every rule has a case", () => {
  const codes = new Set(table.cases.map(({ code }) => code).filter((code) => code !== null));
  assert.deepEqual([...codes].sort(), CODES.filter((code) => !LATER.includes(code)).sort());
});

for (const one of table.cases) {
  test(`decision: ${one.name}`, () => {
    const { decision, code = null, warning = null } = decided(one);
    const expected = { decision: one.decision, code: one.code, warning: one.warning ?? null };
    assert.deepEqual({ decision, code, warning }, expected);
  });
}

const URL_ASKED = table.defaults.requestUrl;
const RECORD = readRecord(table.defaults.record, table.defaults.payTo);

const NOTHING = spentOf(defaults.spent);

function judged(entry, { requestUrl = URL_ASKED, resourceUrl = URL_ASKED, ...changes } = {}) {
  const { record = RECORD, bundleAsOf = defaults.bundleAsOf, spent = NOTHING } = changes;
  const known = { record, inherited: [], host: null, payee: null, asOf: bundleAsOf };
  const asked = { url: requestUrl, hops: [], maxAmount: null, expectPayTo: null, isStopped: false };
  return decide(known, readOffer(entry, resourceUrl), asked, DEFAULT_POLICY, defaults.now, spent);
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
  host: fc.bigInt({ min: 0n, max: 6_000_000n }),
  day: fc.bigInt({ min: 0n, max: 25_000_000n }),
  session: fc.constant(0n),
  lifetime: fc.constant(0n),
  lost: fc.constant(0n),
  losses: fc.nat(4),
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
        const decision = judged(entry, { requestUrl, resourceUrl, bundleAsOf, spent });
        if (decision.decision === "refuse") return;
        const { amount, payTo, timeout } = decision.terms;
        assert.equal(String(amount), entry.amount);
        assert.equal(payTo, entry.payTo.toLowerCase());
        assert.ok(amount > 0n && amount <= DEFAULT_POLICY.maxCall);
        assert.ok(
          spent.host + amount <= DEFAULT_POLICY.maxHostDay &&
            spent.day + amount <= DEFAULT_POLICY.maxDay,
        );
        assert.ok(
          timeout > 0 &&
            timeout <= DEFAULT_POLICY.maxValidity &&
            (spent.losses < 3 || decision.decision === "ask") &&
            age !== null,
        );
      },
    ),
    { numRuns: 1000 },
  );
});

test("what is allowed at a price is allowed at every lower one", () => {
  const at = (amount, changes) =>
    judged({ ...defaults.offer, amount: String(amount) }, changes).decision;
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
  { lossCount: 1.5 },
  { minGrade: "E" },
  { unknown: "allow" },
  { maxday: 1n },
  { failOpen: "false" },
  { failOpen: 0 },
  { payAgain: "always" },
  { deny: "api.example.com" },
  { trust: [] },
  { trust: null },
  { trust: { "api.example.com": { max: 5 } } },
  { trust: { "api.example.com": { max: 5n, facilitator: "0x1" } } },
  { trust: { "api.example.com": { payTo: ["0x1"] } } },
  { trust: { "api.example.com": { payto: [] } } },
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
