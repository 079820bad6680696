import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { decide, policyOf, readOffer, readRecord } from "@tollgauge/guard";

const cases = new URL("../../cases/decisions.json", import.meta.url);
const table = JSON.parse(readFileSync(cases, "utf8"));
const MONEY = ["maxCall", "maxHostDay", "maxDay", "unknownMax", "priceFactor"];

function policyFrom(fields) {
  const money = MONEY.filter((name) => name in fields).map((name) => [name, BigInt(fields[name])]);
  return policyOf({ ...fields, ...Object.fromEntries(money) });
}

function decided(one) {
  const merged = { ...table.defaults, ...one };
  const offer = { ...table.defaults.offer, ...one.offer };
  for (const name of one.without ?? []) delete offer[name];
  const { hostDay, day, repeats } = { ...table.defaults.spent, ...one.spent };
  return decide(
    readOffer(offer, merged.resourceUrl),
    {
      requestUrl: merged.requestUrl,
      record: merged.record === null ? null : readRecord(merged.record),
      bundleAsOf: merged.bundleAsOf,
      spent: { hostDay: BigInt(hostDay), day: BigInt(day), repeats },
      now: merged.now,
    },
    policyFrom({ ...table.defaults.policy, ...one.policy }),
  );
}

for (const one of table.cases) {
  test(`decision: ${one.name}`, () => {
    const { decision, code = null } = decided(one);
    assert.deepEqual({ decision, code }, { decision: one.decision, code: one.code });
  });
}
