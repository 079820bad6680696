// Random fault schedules against the official middleware of express and hono, with a simulated chain
// and a virtual clock: never a second authorization for one purchase.
//
// TOLLGAUGE_SCHEDULES sets their number, and TOLLGAUGE_SCHEDULES_FROM the first seed. If
// TOLLGAUGE_ANVIL is the URL of an anvil, TOLLGAUGE_SCHEDULES_ON_ANVIL of them are also played there,
// with moved time (tests/guard/test_typescript.py).
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { paying as payingFor } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { AnvilChain } from "./support/anvil.mjs";
import { row } from "./support/bundles.mjs";
import { countingSigner, paying } from "./support/client.mjs";
import { PAYEE } from "./support/seller.mjs";
import {
  expressSeller,
  Facilitator,
  honoSeller,
  MOODS,
  NETWORK,
  nodeAnswer,
  PROCESS,
  readPayment,
  SETTLEMENTS,
  SimulatedChain,
} from "./support/simulated.mjs";

const COUNT = Number(process.env.TOLLGAUGE_SCHEDULES ?? 60);
const ON_ANVIL = Number(process.env.TOLLGAUGE_SCHEDULES_ON_ANVIL ?? 4);
const FIRST = Number(process.env.TOLLGAUGE_SCHEDULES_FROM ?? 0);
const STEPS = 14;
const PATHS = ["/a", "/b", "/c"];
const OFF_BY_S = [0, 0, 0, 3600, -3600];
const FAULTS = [
  ...["lost before", "lost after", "cut", "proxy error", "redirect", "cancelled"],
  ...["died before", "died after"],
];
const NO_LIMIT = 1_000_000_000n;
/** The ID of a process that does not run. */
const DEAD_OWNER = "999999999-dead";
const { now: realNow } = Date;
const { fetch: realFetch, setTimeout: realSetTimeout } = globalThis;
const POLL_MS = 50;
let folder;
let world;
let anvil = null;

before(() => {
  if (process.env.TOLLGAUGE_ANVIL !== undefined) anvil = new AnvilChain(process.env.TOLLGAUGE_ANVIL);
  folder = mkdtempSync(join(tmpdir(), "guard-"));
  Date.now = () => (world === undefined ? realNow() : (world.chain.now + (PROCESS.getStore()?.offset ?? 0)) * 1000);
  // A call that waits for an identical one looks again at once.
  globalThis.setTimeout = (work, delay, ...rest) =>
    realSetTimeout(work, delay === POLL_MS ? 1 : delay, ...rest);
  globalThis.fetch = async (input, init) => {
    const { hostname } = new URL(input instanceof Request ? input.url : input);
    if (hostname !== "one" && hostname !== "two") return realFetch(input, init);
    const { id, ...call } = JSON.parse(init.body);
    const result = nodeAnswer(world.chain, world.moods[hostname] ?? "honest", call);
    return Response.json({ jsonrpc: "2.0", id, result });
  };
});
after(() => {
  Date.now = realNow;
  Object.assign(globalThis, { fetch: realFetch, setTimeout: realSetTimeout });
  rmSync(folder, { recursive: true });
});

/** The same random numbers for the same seed (mulberry32). */
function diceOf(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (limit) => Math.floor(next() * limit);
  return { next, below, choose: (values) => values[below(values.length)] };
}

class World {
  wrong = [];
  signed = new Map();
  processes = [];
  moods = {};
  fault = "none";
  answers = 0;
  calls = 0;

  constructor(seed, chain) {
    this.dice = diceOf(seed);
    this.chain = chain;
    const hash = () => `0x${Array.from({ length: 64 }, () => this.dice.below(16).toString(16)).join("")}`;
    this.facilitator = new Facilitator(this.chain, hash);
    this.journal = join(folder, `${seed}-${realNow()}.sqlite`);
    this.named = this.dice.choose([[], ["one"], ["one"], ["one", "two"]]);
  }

  get living() {
    return this.processes.filter(({ isAlive }) => isAlive);
  }

  /** Starts a process with the same wallet and journal. */
  start() {
    const { dice, seller } = this;
    const signer = countingSigner();
    const { signTypedData } = signer;
    signer.signTypedData = async (data) => {
      this.#seeSignature(data.message);
      return signTypedData(data);
    };
    const rows = PATHS.map((path) => row(seller.url + path, { payTo: [PAYEE], amount: "5000", asOf: this.chain.now }));
    const { guard } = paying(rows, {
      signer,
      journal: this.journal,
      nodes: this.named.length === 0 ? {} : { [NETWORK]: this.named.map((name) => `http://${name}/`) },
      policy: {
        ...{ maxHostDay: NO_LIMIT, maxDay: NO_LIMIT, lossBudget: NO_LIMIT, lossCount: 1000 },
        ...{ payAgain: dice.choose(["never", "ask", "auto-up-to"]), payAgainMax: 5000n },
      },
      ...(dice.below(2) === 0 ? {} : { ask: () => true }),
    });
    const pay = guard.fetch(wrapFetchWithPayment, (request) => this.#send(request));
    const one = { guard, pay, offset: dice.choose(OFF_BY_S), isAlive: true };
    this.processes.push(one);
    return one;
  }

  rowOf(nonce) {
    return this.processes[0].guard.journal.find(nonce);
  }

  /** A newer payment of the same purchase must have no open predecessor. */
  #seeSignature({ nonce, validBefore }) {
    const { purchase } = PROCESS.getStore();
    for (const earlier of this.signed.values()) {
      if (earlier.purchase !== purchase || !earlier.hasLeft || earlier.isAnswered) continue;
      const { state } = this.rowOf(earlier.nonce);
      if (state === "lapsed" || state === "written-off") continue;
      const isOver = this.chain.timeOf(this.chain.height - 12) >= earlier.validBefore;
      const isDead = isOver && !this.chain.isUsed(earlier.nonce);
      if (state !== "dead") this.wrong.push(`signed again while ${earlier.nonce} is ${state}`);
      else if (!isDead) this.wrong.push(`${earlier.nonce} is dead only in the journal`);
    }
    const name = nonce.toLowerCase();
    const one = { nonce: name, purchase, validBefore: Number(validBefore), hasLeft: false, isAnswered: false };
    this.signed.set(name, one);
  }

  async #send(request) {
    const header = request.headers.get("payment-signature");
    if (header === null) return this.seller.fetch(request);
    const { nonce } = readPayment(JSON.parse(Buffer.from(header, "base64")));
    const signed = this.signed.get(nonce);
    signed.hasLeft = true;
    const { state } = this.rowOf(nonce);
    if (state !== "in-flight") this.wrong.push(`${nonce} left while it was ${state}`);
    const { fault } = this;
    this.fault = "none";
    if (fault === "lost before") throw new TypeError("fetch failed");
    if (fault === "died before") this.#die(nonce);
    const answer = await this.seller.fetch(request);
    const body = new Uint8Array(await answer.arrayBuffer());
    const { status, headers } = answer;
    if (fault === "lost after") throw new TypeError("fetch failed");
    if (fault === "cancelled") throw new DOMException("cancelled", "AbortError");
    if (fault === "died after") this.#die(nonce);
    if (fault === "proxy error") return new Response(null, { status: 502 });
    if (fault === "redirect") return new Response(null, { status: 307, headers: { location: "/c" } });
    if (fault === "cut") {
      const pull = (controller) => controller.error(new TypeError("terminated"));
      return new Response(new ReadableStream({ pull }), { status, headers });
    }
    if (answer.ok) {
      signed.isAnswered = true;
      this.answers += 1;
    }
    return new Response(body, { status, headers });
  }

  /** Ends the process that sends a payment: it records nothing from now on. */
  #die(nonce) {
    const { one } = PROCESS.getStore();
    one.isAlive = false;
    one.guard.journal.file.all("UPDATE payments SET owner = ? WHERE nonce = ?", DEAD_OWNER, nonce);
    one.guard.journal.change = () => {
      throw new Error("the process has died");
    };
    throw new TypeError("the process has died");
  }

  async call(one, path, key) {
    this.calls += 1;
    const options = key === null ? {} : { purchase: key };
    const context = { offset: one.offset, purchase: key ?? path, one };
    const work = async () => (await one.pay(this.seller.url + path)).text();
    await PROCESS.run(context, () => payingFor(options, work)).catch(() => undefined);
  }

  /** Performs one random action. */
  async step() {
    const { dice, chain, facilitator } = this;
    const one = dice.choose(this.living) ?? this.start();
    const key = dice.choose([null, null, "order-1", "order-2"]);
    // A given key names one purchase, so it is always used with the same URL.
    const path = key === null ? dice.choose(PATHS) : PATHS[Number(key.at(-1)) - 1];
    facilitator.mode = dice.choose([...SETTLEMENTS, "at once", "at once", "at once"]);
    this.fault = dice.choose([...FAULTS, ...Array(7).fill("none")]);
    const actions = [
      () => this.start(),
      () => chain.advance(dice.choose([1, 10, 70, 700, 4000])),
      () => chain.mine(),
      () => chain.drop(),
      () => chain.reorganise(1 + dice.below(8)),
      () => facilitator.restart(),
      () => {
        this.moods = { one: dice.choose(MOODS.slice(0, -1)) };
        // One of two nodes may lie: both must show that a payment is dead.
        if (this.named.length > 1) this.moods.two = dice.choose(MOODS);
      },
      () => Promise.all([1, 2, 3].map(() => this.call(one, path, key))),
      () => this.resolveOne(one),
    ];
    await (actions[dice.below(12)] ?? (() => this.call(one, path, key)))();
  }

  /** Resolves or writes off a random payment, as its owner may. */
  async resolveOne({ guard, offset }) {
    const payment = this.dice.choose(guard.unresolved());
    if (payment === undefined || payment.state === "in-flight") return;
    const isClosed = this.dice.next() < 0.3;
    await PROCESS.run({ offset }, () =>
      isClosed ? guard.writeOff(payment.handle) : guard.resolve(payment.handle),
    );
  }

  /** Ends all faults and time limits, and compares each payment with the chain. */
  async settleAll() {
    Object.assign(this, { named: ["one"], moods: {} });
    this.chain.advance(8000);
    this.chain.advance(400);
    const { guard } = this.start();
    for (const { handle } of guard.unresolved()) await guard.resolve(handle);
    for (const { nonce, state, exposure } of guard.journal.payments()) {
      const isUsed = this.chain.isUsed(nonce);
      const ends = ["delivered", "lapsed", "written-off", isUsed ? "paid-unanswered" : "dead"];
      if (!ends.includes(state)) this.wrong.push(`${nonce} ends as ${state}, used: ${isUsed}`);
      if ((exposure === 0n) !== (state === "dead")) {
        this.wrong.push(`${nonce} is ${state} and counts ${exposure}`);
      }
      if (this.signed.get(nonce).isAnswered && state === "dead") {
        this.wrong.push(`${nonce} was answered and is dead`);
      }
    }
    const known = new Set(guard.journal.payments().map(({ nonce }) => nonce));
    for (const { nonce, hasLeft } of this.signed.values()) {
      if (hasLeft && !known.has(nonce)) this.wrong.push(`${nonce} left without a row`);
    }
  }
}

async function play(seed, newSeller, chain) {
  world = new World(seed, chain);
  world.seller = await newSeller(world.facilitator);
  try {
    for (let number = world.dice.choose([1, 1, 2]); number > 0; number -= 1) world.start();
    for (let number = 0; number < STEPS; number += 1) await world.step();
    await world.settleAll();
  } finally {
    world.seller.close();
    for (const { guard } of world.processes) guard.close();
  }
  return world;
}

async function playAll(t, newSeller, first, count, chainOf) {
  t.mock.method(process, "emitWarning", () => undefined);
  t.mock.method(console, "error", () => undefined);
  let [schedules, calls, answers, signatures, settled] = [0, 0, 0, 0, 0];
  const violations = [];
  for (let seed = first; seed < FIRST + count; seed += 2) {
    const played = await play(seed, newSeller, chainOf());
    violations.push(...played.wrong.map((problem) => `seed ${seed}: ${problem}`));
    schedules += 1;
    calls += played.calls;
    answers += played.answers;
    signatures += played.signed.size;
    settled += [...played.signed.keys()].filter((nonce) => played.chain.isUsed(nonce)).length;
  }
  const counts = `${schedules} schedules, ${calls} calls, ${answers} answers, ${signatures} signatures`;
  t.diagnostic(`${counts}: ${violations.length} violations`);
  assert.deepEqual(violations, []);
  assert.ok(calls > answers && answers > 0, `${answers} answers to ${calls} calls`);
  return { settled, answers };
}

for (const [index, [name, newSeller]] of Object.entries([
  ["express", expressSeller],
  ["hono", honoSeller],
])) {
  const first = FIRST + Number(index);
  test(`${name}: no schedule leads to a second authorization`, (t) =>
    playAll(t, newSeller, first, COUNT, () => new SimulatedChain()));
  if (process.env.TOLLGAUGE_ANVIL === undefined) continue;
  test(`${name}, on anvil: no schedule leads to a second authorization`, async (t) => {
    const { settled, answers } = await playAll(t, newSeller, first, ON_ANVIL, () => anvil);
    assert.ok(settled >= answers, `${settled} settled, ${answers} answers`);
  });
}
