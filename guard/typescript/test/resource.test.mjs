import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parseResource, variants } from "@tollgauge/guard";

const cases = JSON.parse(
  readFileSync(new URL("../../cases/resources.json", import.meta.url), "utf8"),
);

test("resources are canonical as the service has them", () => {
  for (const [url, resource] of cases) assert.equal(parseResource(url)?.url ?? null, resource, url);
});

test("the variants of a path are those of every guard", () => {
  const file = new URL("../../cases/variants.json", import.meta.url);
  for (const [url, expected] of JSON.parse(readFileSync(file, "utf8"))) {
    assert.deepEqual(variants(parseResource(url)), expected, url);
  }
});

test("a resource keeps its canonical form", () => {
  for (const [, resource] of cases)
    if (resource !== null) assert.equal(parseResource(resource).url, resource);
});

test("what a request may go to beside public names is read as well", () => {
  assert.equal(parseResource("http://127.0.0.1:8402/a").url, "http://127.0.0.1:8402/a");
  assert.equal(parseResource("http://[::1]/").host, "[::1]");
  assert.equal(parseResource("http://api.example.com:80").url, "http://api.example.com/");
  assert.equal(parseResource("mcp://TOOL/weather").url, "mcp://tool/weather");
});

test("what is no text is no resource", () => {
  for (const value of [null, undefined, 42, {}, new URL("https://api.example.com/")]) {
    assert.equal(parseResource(value), null);
  }
});
