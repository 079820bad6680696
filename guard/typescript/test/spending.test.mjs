import assert from "node:assert/strict";
import { test } from "node:test";
import { Spending } from "../dist/spending.js";
import fc from "./support/properties.mjs";

const DAY = 86_400;
const MINE = { account: "me", host: "a", request: "x" };

/** What `Spending` should say, from all claims. */
function counted(all, now, { account, host, request }) {
  const claims = all.filter((claim) => claim.account === account);
  const day = (at) => Math.floor(at / DAY);
  const sum = (some) => some.reduce((total, { microUsd }) => total + microUsd, 0n);
  const today = claims.filter(({ at }) => day(at) >= day(now));
  return {
    hostDay: sum(today.filter((claim) => claim.host === host)),
    day: sum(today),
    repeats: claims.filter((claim) => claim.request === request && claim.at > now - 600).length,
  };
}

const step = fc.record({
  isAdded: fc.boolean(),
  pause: fc.oneof(fc.nat(400), fc.nat(2 * DAY)),
  account: fc.constantFrom("me", "you"),
  host: fc.constantFrom("a", "b"),
  request: fc.constantFrom("x", "y"),
  microUsd: fc.bigInt({ min: 1n, max: 9n }),
});

test("sums are those of all claims, whatever was added and removed, over days", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const spending = new Spending();
      let now = 100 * DAY;
      let claims = [];
      for (const [name, { isAdded, pause, ...rest }] of steps.entries()) {
        now += pause;
        if (isAdded) {
          claims.push({ name: String(name), at: now, ...rest });
          spending.add(String(name), claims.at(-1));
        } else if (claims.length > 0) {
          spending.remove(claims.at(-1).name);
          claims = claims.slice(0, -1);
        }
        assert.deepEqual(spending.at(now, rest), counted(claims, now, rest));
      }
    }),
    { numRuns: 200 },
  );
});

test("a payment just before midnight is repeated after it, and is spent on its own day", () => {
  const spending = new Spending();
  spending.add("one", { account: "me", host: "a", request: "x", at: DAY - 1, microUsd: 5n });
  spending.add("two", { account: "me", host: "b", request: "y", at: DAY + 1, microUsd: 7n });
  assert.deepEqual(spending.at(DAY + 2, MINE), { hostDay: 0n, day: 7n, repeats: 1 });
});

test("what was paid before the clock was set back counts today", () => {
  const spending = new Spending();
  spending.add("one", { account: "me", host: "a", request: "x", at: 3 * DAY, microUsd: 5n });
  assert.deepEqual(spending.at(2 * DAY, MINE), { hostDay: 5n, day: 5n, repeats: 1 });
});

test("a payment that is being signed counts at any time, until it is released", () => {
  const spending = new Spending();
  const claim = { ...MINE, at: DAY, microUsd: 5n };
  spending.reserve(claim);
  assert.deepEqual(spending.at(9 * DAY, MINE), { hostDay: 5n, day: 5n, repeats: 1 });
  const yours = { ...MINE, account: "you" };
  assert.deepEqual(spending.at(DAY, yours), { hostDay: 0n, day: 0n, repeats: 0 });
  spending.release(claim);
  assert.deepEqual(spending.at(DAY, MINE), { hostDay: 0n, day: 0n, repeats: 0 });
});
