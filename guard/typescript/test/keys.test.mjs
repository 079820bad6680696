// Which keys may sign a bundle: several pins, succession and retirement.
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { test } from "node:test";
import { Bundle, fingerprint, Keyring } from "@tollgauge/guard";
import { newKey, signedBundle } from "./support/bundles.mjs";

const NOW = 1_790_000_000;
const [old, current, other] = [newKey(), newKey(), newKey()];
const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** A statement by the old key that the current one succeeds it. */
function succession({ signer = old, iat = NOW - 100, ...changes } = {}) {
  const header = { alg: "EdDSA", typ: "tollgauge-succession", kid: fingerprint(old.jwk), ...changes };
  const text = `${encode(header)}.${encode({ successor: current.jwk, iat })}`;
  return `${text}.${sign(null, Buffer.from(text), signer.private).toString("base64url")}`;
}

function accepts(keyring, signer, now = NOW) {
  const { body, signature } = signedBundle([], signer);
  try {
    Bundle.open(body, signature, keyring, now);
    return true;
  } catch (error) {
    assert.equal(error.name, "SignatureError");
    return false;
  }
}

function follows(statement, { now = NOW, isKnown = false, ...retired } = {}) {
  const jwks = { keys: [{ ...old.jwk, ...retired }, current.jwk], successions: [statement] };
  const pinned = Keyring.pin(fingerprint(old.jwk));
  return accepts(pinned.follow(jwks, now, isKnown), current, now);
}

test("each of several pinned keys may sign, and no other", () => {
  const keyring = Keyring.pin([old.jwk, JSON.stringify(current.jwk)]);
  assert.deepEqual([old, current, other].map((key) => accepts(keyring, key)), [true, true, false]);
  assert.throws(() => Keyring.pin([]), { name: "SignatureError" });
});

test("a successor that the pinned key names is accepted", () => {
  assert.ok(follows(succession()));
  assert.ok(follows(succession(), { exp: NOW }));
  for (const statement of [
    ...["", 1, null, "a.b.c", `${succession()}.x`, succession({ signer: other })],
    ...[{ typ: "tollgauge-bundle" }, { alg: "none" }, { kid: fingerprint(current.jwk) }].map(succession),
    ...[succession({ iat: "1" })],
  ]) {
    assert.ok(!follows(statement), String(statement));
  }
});

test("a chain of successors is followed in any order", () => {
  const text = `${encode({ alg: "EdDSA", typ: "tollgauge-succession", kid: fingerprint(current.jwk) })}.${encode({ successor: other.jwk, iat: NOW })}`;
  const next = `${text}.${sign(null, Buffer.from(text), current.private).toString("base64url")}`;
  const keyring = Keyring.pin(old.jwk).follow({ successions: [next, succession()] }, NOW, false);
  assert.ok(accepts(keyring, other));
});

test("a new installation does not accept the successor of a retired key", () => {
  assert.ok(!follows(succession(), { exp: NOW - 1 }));
  assert.ok(follows(succession(), { exp: NOW - 1, isKnown: true }));
  assert.ok(!follows(succession({ iat: NOW }), { exp: NOW - 1, isKnown: true }));
});

test("a retired key signs no bundle any more", () => {
  const keyring = Keyring.pin({ ...old.jwk, exp: NOW });
  assert.ok(accepts(keyring, old, NOW));
  assert.ok(!accepts(keyring, old, NOW + 1));
  const published = Keyring.pin(old.jwk).follow({ keys: [{ ...old.jwk, exp: NOW }] }, NOW, true);
  assert.ok(!accepts(published, old, NOW + 1));
});

test("keys of other kinds in a set are ignored, and a private key is not a pin", () => {
  const jwks = { keys: [null, { kty: "RSA", n: "1" }, old.jwk], successions: "x" };
  assert.ok(accepts(Keyring.pin(fingerprint(old.jwk)).follow(jwks, NOW, false), old));
  for (const document of [{}, null, { keys: 1 }]) {
    assert.ok(!accepts(Keyring.pin(fingerprint(old.jwk)).follow(document, NOW, false), old));
  }
  const secret = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  assert.throws(() => Keyring.pin(secret), /private/);
});
