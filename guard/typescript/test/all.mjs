// Runs the tests in one process, which loads the SDKs once. In suites, the hooks of a file are run
// for its own tests only, so that files may replace the clock.
import { readdirSync } from "node:fs";
import { describe } from "node:test";

for (const file of readdirSync(import.meta.dirname).filter((name) => name.endsWith(".test.mjs"))) {
  describe(file, async () => {
    await import(`./${file}`);
  });
}
