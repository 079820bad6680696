import assert from "node:assert/strict";
import { test } from "node:test";
import { Spending } from "../dist/spending.js";
import fc from "./support/properties.mjs";

const DAY = 86_400;

/** What `Spending` should say, from all claims. */
function counted(claims, now, host, request) {
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
        const { host, request } = rest;
        assert.deepEqual(spending.at(now, host, request), counted(claims, now, host, request));
      }
    }),
    { numRuns: 200 },
  );
});

test("a payment just before midnight is repeated after it, and is spent on its own day", () => {
  const spending = new Spending();
  spending.add("one", { host: "a", request: "x", at: DAY - 1, microUsd: 5n });
  spending.add("two", { host: "b", request: "y", at: DAY + 1, microUsd: 7n });
  assert.deepEqual(spending.at(DAY + 2, "a", "x"), { hostDay: 0n, day: 7n, repeats: 1 });
});

test("what was paid before the clock was set back counts today", () => {
  const spending = new Spending();
  spending.add("one", { host: "a", request: "x", at: 3 * DAY, microUsd: 5n });
  assert.deepEqual(spending.at(2 * DAY, "a", "x"), { hostDay: 5n, day: 5n, repeats: 1 });
});
