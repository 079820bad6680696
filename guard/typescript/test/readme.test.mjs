import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CODES, DEFAULT_POLICY } from "@tollgauge/guard";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const readme = read("../README.md");

test("the README has the codes in the order of the rules", () => {
  const rows = readme
    .split("\n")
    .filter((line) => /^\| `[a-z-]+`.*\| (refuses|asks|refuses or asks|as `unknown` says) \|$/.test(line));
  const listed = rows.flatMap((line) =>
    [...line.split("|")[1].matchAll(/`([a-z-]+)`/g)].map(([, code]) => code),
  );
  assert.deepEqual(listed, CODES);
});

test("the README has the default policy", () => {
  const paragraph = readme
    .slice(readme.indexOf("The default policy"))
    .split("\n\n")[0]
    .replaceAll("\n", " ");
  for (const [name, value] of Object.entries(DEFAULT_POLICY)) {
    const [, shown] = new RegExp(`\`${name}\` ("?[\\w-]+"?)`).exec(paragraph) ?? [];
    const expected =
      { bigint: `${value}n`, string: `"${value}"`, object: "none" }[typeof value] ?? String(value);
    assert.equal(shown?.replaceAll("_", ""), expected, name);
  }
});

test("the README names the oldest Node.js of package.json", () => {
  const { engines } = JSON.parse(read("../package.json"));
  assert.ok(readme.includes(`Node.js ${engines.node.slice(2)} or newer`));
});
