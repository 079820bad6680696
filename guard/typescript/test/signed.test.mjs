// The authorization of a signed payment: the shared cases of guard/cases/signed.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { document, FILE } from "../../cases/signed_cases.mjs";
import { readSigned } from "../dist/signed.js";

const text = readFileSync(FILE, "utf8");

test("the official clients sign what the cases contain", async () => {
  assert.equal(await document(), text);
});

for (const { name, payment, authorization } of JSON.parse(text)) {
  test(name, () => {
    const signed = readSigned(payment);
    if (authorization === null) return assert.equal(signed, null);
    const { account, ...expected } = authorization;
    const { evidence, value, exposed, ...found } = signed;
    const money = { value: String(value), exposed: exposed === null ? null : String(exposed) };
    assert.deepEqual({ ...found, ...money }, expected);
    if (account !== null) {
      assert.deepEqual(JSON.parse(evidence), { account, signature: expected.nonce });
    }
  });
}
