// Where bundles come from: a service that is there, away, slow or hostile; files; bytes.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fingerprint } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { newKey, row, signedBundle } from "./support/bundles.mjs";
import { key, paying, refusal } from "./support/client.mjs";
import { PAYEE, seller, sells } from "./support/seller.mjs";

const HOUR = 3600;
const now = () => Math.floor(Date.now() / 1000);
let shop;
let service;
let folder;
/** The service's answers by path, and the requests that it received. */
let answers;
let asked;

before(async () => {
  shop = await seller({
    "/good": sells({ amount: "20000" }),
    "/other": sells({ amount: "20000" }),
    "/cheap": sells(),
  });
  service = createServer((request, response) => {
    if (request.url !== "/.well-known/jwks.json") asked.push(request.url);
    (answers[request.url] ?? ((_, answer) => answer.writeHead(404).end()))(request, response);
  });
  service.listen(0, "127.0.0.1");
  await once(service, "listening");
});
after(() => {
  shop.close();
  service.closeAllConnections();
  service.close();
});
beforeEach(() => {
  asked = [];
  answers = { "/trust/bundle": serves(bundle()) };
  shop.payments.length = 0;
  folder = mkdtempSync(join(tmpdir(), "guard-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const address = () => `http://127.0.0.1:${service.address().port}/trust/bundle`;

/** A bundle of an age in seconds. The price of /good is only known, and paid, by it. */
function bundle({ age = 0, signer = key, recommendation = "proceed", variant = "all" } = {}) {
  const good = row(`${shop.url}/good`, { payTo: [PAYEE], amount: "20000", recommendation });
  return signedBundle([good], signer, { asOf: now() - age, variant });
}

function serves({ body, signature }, headers = {}) {
  return (request, response) => {
    if (request.headers["if-none-match"] === '"1"') response.writeHead(304).end();
    else
      response
        .writeHead(200, { "tollgauge-signature": signature, etag: '"1"', ...headers })
        .end(body);
  };
}

function customer(options = {}) {
  const cache = mkdtempSync(join(folder, "cache-"));
  const { guard } = paying([], { bundle: address(), cache, ...options });
  const fetch = guard.fetch(wrapFetchWithPayment);
  return (path) => fetch(shop.url + path);
}

test("the bundle of a URL is fetched once", async () => {
  const pay = customer();
  assert.equal((await pay("/good")).status, 200);
  assert.equal((await pay("/good")).status, 200);
  assert.deepEqual(asked, ["/trust/bundle"]);
});

test("a bundle is asked for again after an hour, and by its ETag", async (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const pay = customer();
  await pay("/good");
  context.mock.timers.tick(2 * HOUR * 1000);
  answers["/trust/bundle"] = serves(bundle({ recommendation: "avoid" }), { etag: '"2"' });
  await pay("/good").catch(() => undefined);
  assert.deepEqual(asked, ["/trust/bundle", "/trust/bundle"]);
});

test("the variant that is to be avoided is used where it was asked for", async () => {
  answers["/trust/bundle/avoid"] = serves(bundle({ variant: "avoid", recommendation: "avoid" }));
  assert.equal(await refusal(customer({ bundle: `${address()}/avoid` })("/good")), "avoid");
});

test("a newer bundle is used, and an older one is not", async (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const headers = { etag: '"2"' };
  answers["/trust/bundle"] = serves(bundle({ age: HOUR }), headers);
  const pay = customer({ policy: {  } });
  await pay("/good");
  for (const [age, isUsed] of [
    [2 * HOUR, false],
    [0, true],
  ]) {
    answers["/trust/bundle"] = serves(bundle({ age, recommendation: "avoid" }), headers);
    context.mock.timers.tick(2 * HOUR * 1000);
    await pay("/cheap");
    await new Promise((resolve) => setTimeout(resolve, 100));
    if (isUsed) assert.equal(await refusal(pay("/good")), "avoid");
    else assert.equal((await pay("/good")).status, 200);
  }
});

test("a key that is pinned by its fingerprint is found among the published ones", async () => {
  const keys = [{ kty: "RSA", n: "1", e: "AQAB" }, newKey().jwk, { ...key.jwk, use: "sig" }];
  answers["/.well-known/jwks.json"] = (_, response) => response.end(JSON.stringify({ keys }));
  assert.equal((await customer({ key: fingerprint(key.jwk) })("/good")).status, 200);
  assert.equal(await refusal(customer({ key: fingerprint(newKey().jwk) })("/good")), "bundle-old");
  assert.throws(() => customer({ key: fingerprint(key.jwk), bundle: bundle() }), TypeError);
});

test("a key may be the text of a JWK, as a variable of the environment holds it", async () => {
  assert.equal((await customer({ key: JSON.stringify(key.jwk) })("/good")).status, 200);
  for (const text of ["", "key", "{}", fingerprint(key.jwk).slice(1), undefined]) {
    const message = /public JWK, or its fingerprint/;
    assert.throws(() => customer({ key: text }), { name: "SignatureError", message });
  }
});

const HOSTILE = {
  "is signed by another key": () => serves(bundle({ signer: newKey() })),
  "is the other variant": () => serves(bundle({ variant: "avoid" })),
  "is not signed": () => (_, response) => response.end(bundle().body),
  "is cut off": () => (_, response) => {
    response.writeHead(200, { "tollgauge-signature": "x", "content-length": "1000" }).write("x");
    setImmediate(() => response.destroy());
  },
  "is endless": () => (_, response) => {
    response.writeHead(200, { "tollgauge-signature": "x" });
    const chunk = Buffer.alloc(1024 * 1024);
    const more = () => response.destroyed || response.write(chunk, () => setImmediate(more));
    more();
  },
  "never comes": () => () => undefined,
  "is said to be known already": () => (_, response) => response.writeHead(304).end(),
  "is elsewhere": () => (_, response) => response.writeHead(302, { location: "/other" }).end(),
  "is an error": () => (_, response) => response.writeHead(503).end(),
};
for (const [name, answer] of Object.entries(HOSTILE)) {
  test(`where the bundle ${name}, nothing is paid unless the policy fails open`, async () => {
    answers["/trust/bundle"] = answer();
    answers["/other"] = serves(bundle());
    const bundleTimeoutMs = 1000;
    assert.equal(await refusal(customer({ bundleTimeoutMs })("/cheap")), "bundle-old");
    const open = customer({ bundleTimeoutMs, policy: { failOpen: true } });
    assert.equal((await open("/cheap")).status, 200);
    assert.equal(await refusal(open("/good")), "unknown-resource");
  });
}

test("a bundle that takes longer than a payment waits is used by the next one", async () => {
  let release;
  const released = new Promise((resolve) => (release = resolve));
  answers["/trust/bundle"] = async (...exchange) => {
    await released;
    serves(bundle())(...exchange);
  };
  const pay = customer({ bundleTimeoutMs: 50 });
  await assert.rejects(pay("/good"), { code: "bundle-old", message: /not come within 50 ms/ });
  release();
  while ((await pay("/good").catch(() => null)) === null);
  assert.deepEqual(asked, ["/trust/bundle"]);
  assert.equal(shop.payments.length, 1);
});

test("failing open does not override what a bundle refuses", async () => {
  answers["/trust/bundle"] = serves(bundle({ age: 30 * 24 * HOUR, recommendation: "avoid" }));
  assert.equal(await refusal(customer({ policy: { failOpen: true } })("/good")), "avoid");
});

test("the last good bundle is kept for times without the service, and only as its key signed it", async () => {
  const cache = join(folder, "bundles");
  assert.equal((await customer({ cache })("/good")).status, 200);
  answers = {};
  assert.equal((await customer({ cache })("/good")).status, 200);
  assert.equal(await refusal(customer({ cache, key: newKey().jwk })("/good")), "bundle-old");
  const [name] = readdirSync(cache);
  writeFileSync(join(cache, name), "broken");
  assert.equal(await refusal(customer({ cache })("/good")), "bundle-old");
});

test("an old bundle does not take the place of the newer one that is kept", async (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const cache = join(folder, "bundles");
  answers["/trust/bundle"] = serves(bundle({ recommendation: "avoid" }), { etag: '"2"' });
  const pay = customer({ cache });
  assert.equal(await refusal(pay("/good")), "avoid");
  answers["/trust/bundle"] = serves(bundle({ age: HOUR }), { etag: '"3"' });
  context.mock.timers.tick(2 * HOUR * 1000);
  await pay("/cheap");
  await new Promise((resolve) => setTimeout(resolve, 100));
  answers = {};
  assert.equal(await refusal(customer({ cache })("/good")), "avoid");
});

test("after the clock was set back, the bundle is asked for again", async (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: Date.now() + 100 * HOUR * 1000 });
  const pay = customer();
  await refusal(pay("/good"));
  context.mock.timers.setTime(Date.now() - 99 * HOUR * 1000);
  await pay("/cheap");
  assert.deepEqual(asked, ["/trust/bundle", "/trust/bundle"]);
});

test("a bundle that is kept too long vouches for no endpoint", async () => {
  const cache = join(folder, "bundles");
  answers["/trust/bundle"] = serves(bundle({ age: 49 * HOUR }));
  await customer({ cache })("/cheap");
  answers = {};
  assert.equal(await refusal(customer({ cache })("/good")), "bundle-stale");
});

test("a bundle in a file has its signature in a file next to it", async () => {
  const file = join(folder, "bundle.zst");
  const { body, signature } = bundle();
  writeFileSync(file, body);
  assert.equal(await refusal(customer({ bundle: file })("/good")), "bundle-old");
  writeFileSync(`${file}.jws`, `${signature}\n`);
  assert.equal((await customer({ bundle: file })("/good")).status, 200);
});

test("a file holds the variant that its name says", async () => {
  for (const [name, variant, isUsed] of [
    ["bundle.zst", "avoid", false],
    ["avoid.zst", "all", false],
    ["my-avoid.zst", "avoid", true],
    ["bundle.avoid", "avoid", false],
  ]) {
    const file = join(folder, name);
    const { body, signature } = bundle({ variant, recommendation: "avoid" });
    writeFileSync(file, body);
    writeFileSync(`${file}.jws`, signature);
    const code = isUsed ? "avoid" : "bundle-old";
    assert.equal(await refusal(customer({ bundle: file })("/good")), code);
  }
});

test("why there is no bundle is said in the refusal, without what its URL may hold in secret", async () => {
  const pay = customer({ bundle: `${address()}?token=secret` });
  await assert.rejects(pay("/good"), ({ message }) => {
    assert.match(message, /trust\/bundle answered with status 404/);
    return !message.includes("secret");
  });
});

test("a service that does not answer is named in the refusal, without what its URL may hold in secret", async () => {
  const closed = createServer().listen(0, "127.0.0.1");
  await once(closed, "listening");
  const { port } = closed.address();
  closed.close();
  await once(closed, "close");
  const pay = customer({ bundle: `http://127.0.0.1:${port}/trust/bundle?token=secret` });
  await assert.rejects(pay("/good"), ({ message }) => {
    assert.match(message, /:\d+\/trust\/bundle does not answer \(ECONNREFUSED\)\. Check/);
    return !message.includes("secret");
  });
});

test("a file that is not there is named in the refusal, in a sentence", async () => {
  const pay = customer({ bundle: join(folder, "none.zst") });
  await assert.rejects(pay("/good"), /none\.zst(?:\.jws)?'\. Check the address/);
});

test("the service gives a second opinion about an unknown endpoint, if the owner wants it", async () => {
  const terms = { payTo: PAYEE, amount: "20000", network: "eip155:8453" };
  const resource = `${shop.url}/other`;
  const preflight = `/trust/preflight?${new URLSearchParams({ resource, ...terms })}`;
  for (const [secondOpinion, status, answer, code] of [
    [false, 200, { decision: "allow" }, "unknown-resource"],
    [true, 200, { decision: "allow", code: null }, null],
    [true, 200, { decision: "refuse", code: "avoid" }, "avoid"],
    [true, 200, { decision: "refuse", code: "of a later version" }, "unknown-resource"],
    [true, 200, { decision: "ask", code: "unknown-resource" }, "unknown-resource"],
    [true, 200, [], "unknown-resource"],
    [true, 500, { decision: "allow" }, "unknown-resource"],
  ]) {
    asked = [];
    answers[preflight] = (_, response) => response.writeHead(status).end(JSON.stringify(answer));
    const call = customer({ policy: { secondOpinion } })("/other?secret=1");
    assert.equal(code === null ? (await call).status : await refusal(call), code ?? 200);
    assert.equal(asked.includes(preflight), secondOpinion);
  }
});

test("a bundle that is not named, as by a missing variable, is an error at the start", () => {
  for (const bundle of [undefined, ""]) {
    assert.throws(() => customer({ bundle }), { name: "TypeError", message: /No bundle was named/ });
  }
});
