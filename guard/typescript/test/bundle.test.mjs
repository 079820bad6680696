import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Bundle, parseResource, publicKey } from "@tollgauge/guard";
import { contentOf, keyOf, newKey, row, signature, signedBundle, zstdFrame } from "./support/bundles.mjs";
import fc from "./support/properties.mjs";

const key = newKey();
const URLS = Array.from({ length: 40 }, (_, index) => `https://api.example.com/${index}`);
const rows = URLS.map((url, index) => row(url, { amount: String(index + 1) }));
const good = signedBundle(rows, key);
const open = ({ body, signature: jws }) => Bundle.open(body, jws, key.jwk);

/** A body that the right key signed, whatever it holds. */
const signed = (body) => ({ body, signature: signature(body, key) });
const holding = (text) => signed(zstdFrame(Buffer.from(text)));
const refuses = (pair, reason) => assert.throws(() => open(pair), reason);

test("the shared sample says what it should of every resource", () => {
  const folder = new URL("../../cases/", import.meta.url);
  const read = (name) => readFileSync(new URL(name, folder));
  const sample = JSON.parse(read("bundle.json"));
  const bundle = Bundle.open(
    read("bundle.zst"),
    read("bundle.zst.jws").toString().trim(),
    publicKey(sample.key),
  );
  assert.equal(bundle.header.asOf, sample.asOf);
  assert.ok(Object.keys(sample.records).length > 0);
  for (const [url, line] of Object.entries(sample.records)) {
    const record = bundle.find(parseResource(url));
    assert.deepEqual(
      [record.recommendation, record.offers.map(({ payTo, amount }) => [payTo, `${amount}`])],
      [line[1], line[4].map(([, , index, amount]) => [sample.payTo[index], amount])],
      url,
    );
  }
});

test("every record is there, and nothing else", () => {
  const bundle = open(good);
  for (const [index, url] of URLS.entries())
    assert.equal(bundle.find(parseResource(url)).offers[0].amount, BigInt(index + 1));
  for (const url of ["https://api.example.com/", "https://other.example.com/1"])
    assert.equal(bundle.find(parseResource(url)), null);
});

test("a resource by plain http is that by https", () => {
  assert.equal(open(good).find(parseResource("http://api.example.com/3")).offers[0].amount, 4n);
  assert.equal(open(good).find(parseResource("http://api.example.com:8080/3")), null);
});

test("a template is the record of the URLs that fill it in", () => {
  const pattern = "https://api.example.com/v1/%7Bid%7D/price";
  const host = [keyOf("host:api.example.com"), 1, 0, 0, [pattern]];
  const bundle = open(signedBundle([row(pattern), host], key));
  const found = (url) => bundle.find(parseResource(url)) !== null;
  assert.ok(found("https://api.example.com/v1/7/price"));
  assert.ok(found("http://api.example.com/v1/a%2Fb/price"));
  assert.ok(!found("https://api.example.com/v1/7/8/price"));
  assert.ok(!found("https://api.example.com/v1//price"));
  assert.ok(!found("https://api.example.com/v1/7/prices"));
  assert.ok(!found("https://api.example.com:8443/v1/7/price"));
});

test("a bundle without records is a bundle", () => {
  assert.equal(open(signedBundle([], key)).find(parseResource(URLS[0])), null);
});

test("a bundle with one bit changed is refused, in its body and in its signature", () => {
  const bits = (size) => fc.record({ at: fc.nat(size - 1), bit: fc.nat(7) });
  const flipped = (bytes, { at, bit }) =>
    bytes.map((byte, index) => (index === at ? byte ^ (1 << bit) : byte));
  fc.assert(
    fc.property(bits(good.body.length), (flip) =>
      refuses({ ...good, body: flipped(good.body, flip) }, { name: "SignatureError" }),
    ),
    { numRuns: 50 },
  );
  const jws = Buffer.from(good.signature);
  fc.assert(
    fc.property(bits(jws.length), (flip) => {
      const changed = Buffer.from(flipped(jws, flip)).toString("latin1");
      // The last character of a signature has 2 unused bits.
      fc.pre(
        !Buffer.from(changed.split(".")[2] ?? "", "base64url").equals(
          Buffer.from(good.signature.split(".")[2], "base64url"),
        ) || changed.split(".")[0] !== good.signature.split(".")[0],
      );
      refuses({ ...good, signature: changed }, { name: "SignatureError" });
    }),
    { numRuns: 100 },
  );
});

test("a truncated bundle is refused, signed or not", () => {
  const body = good.body.subarray(0, good.body.length - 1);
  refuses({ ...good, body }, { name: "SignatureError" });
  refuses(signed(body), Error);
});

test("another key, purpose or algorithm is refused", () => {
  const other = newKey();
  refuses({ ...good, signature: signature(good.body, other) }, /another key/);
  refuses(
    { ...good, signature: signature(good.body, { ...other, jwk: key.jwk }) },
    /does not belong/,
  );
  refuses(
    { ...good, signature: signature(good.body, key, { typ: "tollgauge-report" }) },
    /another purpose/,
  );
  refuses({ ...good, signature: signature(good.body, key, { alg: "none" }) }, /EdDSA/);
  refuses({ ...good, signature: signature(good.body, key, { alg: "HS256" }) }, /EdDSA/);
  refuses({ ...good, signature: signature(good.body, key, { b64: true }) }, /raw bytes/);
  refuses(
    { ...good, signature: signature(good.body, key, { crit: ["b64", "exp"] }) },
    /extensions/,
  );
  for (const jws of [
    "",
    "..",
    "a..b",
    `${good.signature}.`,
    good.signature.replace("..", ".e30."),
  ]) {
    refuses({ ...good, signature: jws }, /not a detached JWS/);
  }
});

test("a signed body that is no bundle is refused, and does not fill the memory", () => {
  const content = contentOf(rows);
  refuses(signed(Buffer.from("no zstd")), /not a zstd frame/);
  refuses(signed(zstdFrame(content, content.length - 1)), /longer than it declares/);
  refuses(signed(zstdFrame(content, content.length + 1)), /shorter than it declares/);
  for (const size of [128 * 1024 * 1024 + 1, 2 ** 40])
    refuses(signed(zstdFrame(content, size)), /larger than/);
  refuses(signed(Buffer.concat([zstdFrame(content), zstdFrame(content)])), /longer than it declares/);
  const withoutSize = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x01, 0x00, 0x00]);
  refuses(signed(withoutSize), /does not say its size/);
  const window = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x40, 0xf8, 0x00, 0x01, 0x01, 0x00, 0x00]);
  refuses(signed(window), /larger than/);
  refuses(signed(Buffer.alloc(33 * 1024 * 1024)), /larger than/);
});

test("a bomb of repeated bytes ends at the size that it says", () => {
  const header = zstdFrame(Buffer.alloc(0), 1000).subarray(0, 13);
  const repeated = Buffer.from([0x02 | (0x1ffff << 3), 0x1ffff >> 5, 0x1ffff >> 13, 0x41]);
  refuses(signed(Buffer.concat([header, ...Array(100_000).fill(repeated)])), Error);
});

test("records out of order, doubled, miscounted or broken are refused", () => {
  const lines = contentOf(rows).toString().split("\n");
  const [header, first, second, ...others] = lines;
  refuses(holding([header, second, first, ...others].join("\n")), /not sorted/);
  refuses(holding([header, first, first, ...others].join("\n")), /not sorted/);
  refuses(holding([header, second, ...others].join("\n")), /has 39 records and announces 40/);
  refuses(holding(lines.join("\n").trimEnd()), /broken/);
  refuses(holding([header, "[]", ""].join("\n")), /broken/);
  refuses(holding("{}\n"), /format/);
  refuses(holding("{"), /no header/);
  refuses(holding("{\n"), /not JSON/);
  for (const change of [
    { format: 1 },
    { count: -1 },
    { asOf: "1" },
    { payTo: "short" },
    { variant: "none" },
  ]) {
    refuses(signed(zstdFrame(contentOf(rows, change))), { name: "BundleError" });
  }
});

test("a record of another form is an error, not an unknown endpoint", () => {
  for (const [at, value] of [
    [1, 7],
    [2, 7],
    [3, "90"],
    [4, [["0x1"]]],
    [4, [["eip155:8453", "exact", 0, 5000]]],
    [4, [["eip155:8453", "exact", 0, "-1"]]],
    [4, [["eip155:8453", "exact", 9999, "1"]]],
    [4, 1],
    [5, "flag"],
    [8, "1"],
  ]) {
    const line = row(URLS[0]).with(at, value);
    assert.throws(() => open(signedBundle([line], key)).find(parseResource(URLS[0])), {
      name: "RecordError",
    });
  }
});
