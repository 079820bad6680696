// Bundles that a test signs itself: one zstd frame of stored blocks (RFC 8878 section 3.1.1.2.1).
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { fingerprint, publicKey } from "@tollgauge/guard";

const BLOCK = 100_000;

export function newKey() {
  const pair = generateKeyPairSync("ed25519");
  return { private: pair.privateKey, jwk: publicKey(pair.publicKey.export({ format: "jwk" })) };
}

export function keyOf(resource) {
  const digest = createHash("sha256").update("tollgauge:v2:").update(resource).digest();
  return digest.subarray(0, 16).toString("base64url");
}

/** The table of addresses of every bundle; grows with the rows. */
const PAY_TO = ["0x209693bc6afc0c5328ba36faf03c514ef312287c"];

function indexOf(address) {
  if (!PAY_TO.includes(address)) PAY_TO.push(address);
  return PAY_TO.indexOf(address);
}

/** A record of a resource, in the order of the bundle's arrays. */
export function row(
  resource,
  {
    recommendation = "proceed",
    grade = "A",
    payTo = PAY_TO.slice(0, 1),
    network = "eip155:8453",
    amount = "1000",
    asOf = 1,
  } = {},
) {
  const offers = payTo.map((one) => [network, "exact", indexOf(one), amount]);
  return [keyOf(resource), recommendation, grade, 90.5, offers, [], null, null, asOf];
}

/** A bundle's record of a host (`host:<host>`) or a payTo (`payto:<address>`). */
export function conductRow(name, { endpoints = 3, abusive = 0, unavailable = 0 } = {}) {
  return [keyOf(name), endpoints, abusive, unavailable];
}

/** A frame that declares the size of its content, or the given size. */
export function zstdFrame(content, size = content.length) {
  const header = Buffer.alloc(13);
  header.writeUInt32LE(0xfd2fb528, 0);
  header[4] = 0xe0;
  header.writeBigUInt64LE(BigInt(size), 5);
  const blocks = [];
  for (let at = 0; at === 0 || at < content.length; at += BLOCK) {
    const block = content.subarray(at, at + BLOCK);
    const isLast = at + BLOCK >= content.length ? 1 : 0;
    const head = Buffer.alloc(3);
    head.writeUIntLE((block.length << 3) | isLast, 0, 3);
    blocks.push(head, block);
  }
  return Buffer.concat([header, ...blocks]);
}

export function contentOf(rows, header = {}) {
  const first = {
    format: 2,
    policyVersion: 3,
    asOf: Math.floor(Date.now() / 1000),
    count: rows.length,
    payTo: PAY_TO,
    variant: "all",
    ...header,
  };
  const sorted = [...rows].sort((one, other) => (one[0] < other[0] ? -1 : 1));
  return Buffer.from([first, ...sorted].map((line) => `${JSON.stringify(line)}\n`).join(""));
}

/** The detached JWS of a body. */
export function signature(body, key, header = {}) {
  const fields = {
    alg: "EdDSA",
    b64: false,
    crit: ["b64"],
    kid: fingerprint(key.jwk),
    typ: "tollgauge-bundle",
    iat: 1,
    ...header,
  };
  const encoded = Buffer.from(JSON.stringify(fields)).toString("base64url");
  const digest = createHash("sha256").update(body).digest();
  const signed = sign(null, Buffer.concat([Buffer.from(`${encoded}.`), digest]), key.private);
  return `${encoded}..${signed.toString("base64url")}`;
}

export function signedBundle(rows, key, header = {}) {
  const body = zstdFrame(contentOf(rows, header));
  return { body, signature: signature(body, key) };
}
