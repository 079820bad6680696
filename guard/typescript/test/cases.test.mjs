// The shared cases of guard/cases: states, steps, evidence, purchases and budgets.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isOverLosses, Journal, MEMORY, overBudget, policyOf } from "@tollgauge/guard";
import { combine, proveEvm, proveSolana } from "../dist/evidence.js";
import {
  isGoodStatus,
  isWindowOver,
  nextStep,
  PURCHASE_WINDOW_S,
  SETTLE_MARGIN_S,
  TRANSITIONS,
} from "../dist/payment-state.js";
import { accountId, givenKey, requestKey, urlDigest } from "../dist/purchase-key.js";

const load = (name) =>
  JSON.parse(readFileSync(new URL(`../../cases/${name}`, import.meta.url), "utf8"));
const [payments, purchases, budgets] = ["payments", "purchases", "budgets"].map((name) =>
  load(`${name}.json`),
);

test("the transitions are those of the table", () => {
  const table = payments.transitions.filter(({ from }) => from !== null);
  const known = Object.entries(TRANSITIONS).flatMap(([from, events]) =>
    Object.keys(events).map((event) => `${from} ${event}`),
  );
  assert.deepEqual(known.sort(), table.map(({ from, event }) => `${from} ${event}`).sort());
  for (const { from, event, to, effects } of table) {
    const found = TRANSITIONS[from][event];
    assert.equal(found.to, to, `${from} ${event}`);
    const flags = {
      release: "release",
      settle: "settle",
      dropPayload: "drop-payload",
      keepHint: "keep-hint",
    };
    for (const [flag, effect] of Object.entries(flags)) {
      assert.equal(found[flag] ?? false, effects.includes(effect), `${from} ${event} ${flag}`);
    }
  }
});

test("the margin of facilitators and the window are those of the cases", () => {
  assert.deepEqual([SETTLE_MARGIN_S, PURCHASE_WINDOW_S], [6, purchases.windowDefaults.windowSeconds]);
});

// The other responses depend on the transport, and on the owner's `isAnswer`.
for (const one of payments.responses.filter((row) => row.complete && row.accepted !== false)) {
  test(`response: ${one.name}`, () => {
    const event = isGoodStatus(one.status, one.conditional) ? "answer" : "error-answer";
    assert.equal(event, one.event);
  });
}

for (const one of payments.steps) {
  test(`step: ${one.name}`, () => {
    const row = { ...payments.stepDefaults, ...one };
    const step = nextStep({
      state: row.state,
      isBusy: row.busy,
      isQueueOver: row.queueOver,
      mayResend: row.sameUrl && row.offered && row.payloadKept,
      secondsLeft: row.secondsLeft,
      evidence: row.evidence,
      isWindowOver: row.windowOver && !row.keyed,
      payAgain: row.payAgain,
      payAgainMax: BigInt(row.payAgainMax),
      exposure: BigInt(row.exposure),
      hasApprover: row.approver,
    });
    assert.equal(step, one.step);
  });
}

function prove(one) {
  const [, scheme = ""] = one.scheme.split("/");
  if (scheme === "solana") return proveSolana(one.found, one.finalizedHeight, one.validHeight);
  if (!/^(deposit-)?(eip3009|permit2)$/.test(scheme)) return "unknown";
  const { timestamp, depth, finalized, used } = one.block ?? {};
  const block = one.block ? { timestamp, depth, isFinalized: finalized, isUsed: used } : null;
  const deadFrom = one.validBefore + (scheme.endsWith("permit2") ? 1 : 0);
  const exposure = BigInt(one.exposure ?? payments.evidenceDefaults.exposure);
  return proveEvm(one.latest, block, deadFrom, exposure);
}
for (const one of payments.evidence) {
  test(`evidence: ${one.name}`, () => assert.equal(prove(one), one.evidence));
}
for (const one of payments.nodes) {
  test(`nodes: ${one.name}`, () => assert.equal(combine(one.nodes), one.evidence));
}

for (const one of purchases.accounts) {
  test(`account: ${one.name}`, () => assert.equal(accountId(one.wallets), one.account));
}
for (const one of purchases.requests) {
  test(`purchase: ${one.name}`, () => {
    const headers = new Headers(one.headers);
    const body = Buffer.from(one.body);
    const key = requestKey(one.method, one.url, (name) => headers.get(name), body);
    assert.equal(one.given === undefined ? key : givenKey(one.given), one.purchase);
    assert.equal(urlDigest(one.url), one.urlDigest);
  });
}
for (const one of purchases.windows) {
  test(`window: ${one.name}`, () => {
    const row = { ...purchases.windowDefaults, ...one };
    const purchase = row.keyed ? "key:x" : "sha256:x";
    assert.equal(isWindowOver({ ...row, purchase }, row.now), one.over);
  });
}

for (const one of budgets.cases) {
  test(`budget: ${one.name}`, () => {
    const journal = new Journal(MEMORY);
    for (const payment of one.payments) {
      const row = { ...budgets.defaults, ...payment };
      journal.addExposure(row, BigInt(row.exposure));
      journal.addExposure(row, -BigInt(row.released ?? 0));
    }
    const spent = journal.spent({ ...budgets.defaults, at: one.now });
    for (const [name, sum] of Object.entries(one.spent)) assert.equal(spent[name], BigInt(sum), name);
  });
}

const bigs = (fields) =>
  Object.fromEntries(Object.entries(fields).map(([name, sum]) => [name, sum === null ? null : BigInt(sum)]));
const NOTHING = { host: 0n, day: 0n, session: 0n, lifetime: 0n, lost: 0n, losses: 0 };

for (const one of budgets.limits) {
  test(`limit: ${one.name}`, () => {
    const { host, day, session, lifetime } = bigs({ ...budgets.limitDefaults, ...one.limits });
    const limits = { maxHostDay: host, maxDay: day, maxSession: session, maxLifetime: lifetime };
    const spent = { ...NOTHING, ...bigs(one.spent ?? {}) };
    const refusal = overBudget(BigInt(one.exposure), spent, policyOf(limits));
    assert.equal(refusal?.code ?? null, one.code);
  });
}

for (const one of budgets.losses) {
  test(`losses: ${one.name}`, () => {
    const journal = new Journal(MEMORY);
    for (const [index, { state, changedAt, host, exposure }] of one.losses.entries()) {
      journal.file.all(
        `INSERT INTO payments (handle, account, purchase, session, owner, state, at, changed_at, host,
           resource, url_digest, scheme, method, network, asset, pay_to, amount, exposure, payer,
           valid_before)
         VALUES (?, ?, '', '', '', ?, 0, ?, ?, '', '', 'exact', 'eip3009', '', '', '', '0', ?, '', 0)`,
        ...[String(index), budgets.defaults.account, state, changedAt, host, exposure],
      );
    }
    const row = { ...budgets.lossDefaults, ...one };
    const policy = policyOf({ lossBudget: BigInt(row.lossBudget), lossCount: row.lossCount });
    const spent = journal.spent({ ...budgets.defaults, at: budgets.now });
    assert.equal(isOverLosses(spent, policy), one.over);
  });
}
