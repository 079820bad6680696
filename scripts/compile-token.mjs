// Compiles the demo token with the locked compiler and writes the artefact that the demo chain
// loads. `node scripts/compile-token.mjs` rewrites it; `--check` only compares, and exits 1 if
// the committed artefact differs from the compiled source.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";

setFlagsFromString("--liftoff-only"); // the compiler runs too briefly for optimised machine code
const solc = createRequire(import.meta.url)("solc");
const folder = new URL("../src/tollgauge/demo/token/", import.meta.url);
const artefact = new URL("DemoUSDC.json", folder);

const input = {
  language: "Solidity",
  sources: { "DemoUSDC.sol": { content: readFileSync(new URL("DemoUSDC.sol", folder), "utf8") } },
  settings: {
    optimizer: { enabled: true, runs: 200 },
    evmVersion: "cancun",
    // No metadata hash: the same source gives the same bytes wherever it is compiled.
    metadata: { appendCBOR: false, bytecodeHash: "none" },
    outputSelection: { "*": { "*": ["abi", "evm.deployedBytecode.object"] } },
  },
};

const output = JSON.parse(solc.compile(JSON.stringify(input)));
const problems = output.errors ?? [];
for (const problem of problems) console.error(problem.formattedMessage);
if (problems.length > 0) process.exit(1);

const { abi, evm } = output.contracts["DemoUSDC.sol"].DemoUSDC;
const runtime = `0x${evm.deployedBytecode.object}`;
const text = `${JSON.stringify({ compiler: solc.version(), runtime, abi }, null, 1)}\n`;

if (process.argv.includes("--check")) {
  if (readFileSync(artefact, "utf8") !== text) {
    console.error("DemoUSDC.json is stale: run `npm run compile-token` and commit it.");
    process.exit(1);
  }
} else {
  writeFileSync(artefact, text);
}
