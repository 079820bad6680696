// Compiles the contracts through which the payment trace's tests pay, with the locked compiler.
// `node scripts/compile-wrappers.mjs` rewrites the artefact; `--check` only compares, and exits 1
// if the committed artefact differs from the compiled source.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setFlagsFromString } from "node:v8";

setFlagsFromString("--liftoff-only"); // the compiler runs too briefly for optimised machine code
const solc = createRequire(import.meta.url)("solc");
const folder = new URL("../tests/support/wrappers/", import.meta.url);

for (const name of ["Wrappers", "Escrows"]) {
  const source = `${name}.sol`;
  const artefact = new URL(`${name}.json`, folder);
  const input = {
    language: "Solidity",
    sources: { [source]: { content: readFileSync(new URL(source, folder), "utf8") } },
    settings: {
      // Compiling takes a quarter of the time without it, and nothing depends on the gas.
      optimizer: { enabled: false },
      evmVersion: "cancun",
      metadata: { appendCBOR: false, bytecodeHash: "none" },
      outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
    },
  };

  const output = JSON.parse(solc.compile(JSON.stringify(input)));
  const problems = output.errors ?? [];
  for (const problem of problems) console.error(problem.formattedMessage);
  if (problems.length > 0) process.exit(1);

  const contracts = Object.entries(output.contracts[source])
    .filter(([, { evm }]) => evm.bytecode.object)
    .map(([contract, { abi, evm }]) => [contract, { creation: `0x${evm.bytecode.object}`, abi }]);
  const text = `${JSON.stringify(Object.fromEntries(contracts), null, 1)}\n`;

  if (!process.argv.includes("--check")) {
    writeFileSync(artefact, text);
  } else if (readFileSync(artefact, "utf8") !== text) {
    console.error(`${name}.json is stale: run \`node scripts/compile-wrappers.mjs\`.`);
    process.exit(1);
  }
}
