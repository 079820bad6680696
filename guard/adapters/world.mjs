// The seller, bundle and scripted model of world.py, for tests in JavaScript.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { guarded, MEMORY } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

export const PRIVATE_KEY = `0x${"11".repeat(32)}`;

export async function startWorld() {
  const folder = mkdtempSync(join(tmpdir(), "adapters-"));
  const python = process.env.TEST_PYTHON ?? "python3";
  const process_ = spawn(python, [join(import.meta.dirname, "world.py"), folder]);
  process_.stderr.pipe(process.stderr);
  const lines = createInterface({ input: process_.stdout })[Symbol.asyncIterator]();
  const read = async () => JSON.parse((await lines.next()).value);
  const order = async (document) => {
    process_.stdin.write(`${JSON.stringify(document)}\n`);
    return read();
  };
  const named = await read();
  return {
    ...named,
    /** What the model will call, one after the other. */
    script: (calls) => order(calls),
    /** What was seen so far; the seller answers payments with 500 if it `fails`. */
    look: (state = {}) => order(state),
    environment: {
      TOLLGAUGE_GUARD_BUNDLE: named.TOLLGAUGE_GUARD_BUNDLE,
      TOLLGAUGE_GUARD_KEY: named.TOLLGAUGE_GUARD_KEY,
      PRIVATE_KEY,
      OPENAI_API_KEY: "none",
      OPENAI_BASE_URL: named.model,
      XDG_STATE_HOME: folder,
      XDG_CACHE_HOME: folder,
    },
    async close() {
      process_.stdin.end();
      await once(process_, "exit");
      rmSync(folder, { recursive: true });
    },
  };
}

export function openGuard(world) {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: privateKeyToAccount(PRIVATE_KEY) });
  return guarded(client, {
    bundle: world.TOLLGAUGE_GUARD_BUNDLE,
    key: world.TOLLGAUGE_GUARD_KEY,
    journal: MEMORY,
    policy: { unknown: "refuse" },
  });
}

export function hostileCalls(world) {
  const file = join(import.meta.dirname, "hostile.json");
  const calls = JSON.parse(readFileSync(file, "utf8").replaceAll("ORIGIN", world.seller));
  assert.equal(calls.length, 200);
  return calls;
}

/** A result for a model has no address and no setting. */
export function assertSafe(result) {
  for (const word of ["0x", "maxCall", "policy", "remedy", "trust"]) {
    assert.ok(!result.includes(word), result);
  }
}

/** Runs an example of guard/examples with the packages of a folder, and returns what it prints. */
export async function runExample(world, name, packages = "", word = "How is the weather?") {
  // It is run from a folder that finds the frameworks.
  const folder = join(import.meta.dirname, packages, "node_modules/.examples");
  const path = join(folder, name);
  mkdirSync(folder, { recursive: true });
  copyFileSync(join(import.meta.dirname, "../examples", name), path);
  const NODE_OPTIONS = `--import=${join(import.meta.dirname, "only-loopback.mjs")}`;
  const variables = { ...process.env, ...world.environment, NODE_NO_WARNINGS: "1", NODE_OPTIONS };
  const options = { env: variables, cwd: import.meta.dirname };
  const example = spawn(process.execPath, [path, word], options);
  let printed = "";
  example.stdout.on("data", (chunk) => (printed += chunk));
  example.stderr.pipe(process.stderr);
  const [code] = await once(example, "close");
  assert.equal(code, 0, printed);
  return printed;
}
