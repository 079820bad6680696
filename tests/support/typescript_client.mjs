// Which 402s the official TypeScript clients would pay, with every scheme that the installed packages
// export. Reads a JSON array of {header, body, families} from standard input. The header or the body
// may be null; families are packages such as "evm", by default all, or "circle" for Circle's client.
// Writes a JSON array of texts: empty if the client signed a payment, otherwise the reason. For the
// input "registered", the result is an array of [version, network, scheme]. The only requests go to
// the Solana node at SOLANA_RPC.
import { readFileSync, readdirSync } from "node:fs";
import { registerBatchScheme } from "@circle-fin/x402-batching/client";
import { createKeyPairSignerFromPrivateKeyBytes } from "@solana/kit";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { privateKeyToAccount } from "viem/accounts";

const packages = new URL("../../node_modules/@x402/", import.meta.url);
const families = {
  evm: { pattern: "eip155:*", signer: privateKeyToAccount("0x" + "11".repeat(32)) },
  svm: {
    pattern: "solana:*",
    signer: await createKeyPairSignerFromPrivateKeyBytes(new Uint8Array(32).fill(17)),
  },
};
const options = { rpcUrl: process.env.SOLANA_RPC };

// [version, network or pattern, scheme's client] of a package: the clients that it registers by
// itself, and all others that it exports.
async function schemesOf(name) {
  const found = [];
  for (const path of clientsOf(name)) {
    const { pattern, signer } = families[name]; // an unknown family fails here
    const version = path.includes("/v1/") ? 1 : 2;
    for (const [label, Scheme] of Object.entries(await import(`@x402/${name}${path.slice(1)}`))) {
      if (!/Scheme(V1)?$/.test(label) || label.startsWith("register")) continue;
      const { NETWORKS } = await import(`@x402/${name}/v1`);
      for (const network of version === 1 ? NETWORKS : [pattern])
        found.push([version, network, new Scheme(signer, options)]);
    }
  }
  return found;
}

// The paths of a package that export clients of schemes, such as "./exact/client".
function clientsOf(name) {
  const manifest = JSON.parse(readFileSync(new URL(`${name}/package.json`, packages)));
  return Object.keys(manifest.exports).filter((path) => /\/.+\/client$/.test(path));
}

const installed = readdirSync(packages).filter((name) => clientsOf(name).length > 0);
const schemes = Object.fromEntries(
  await Promise.all(installed.map(async (name) => [name, await schemesOf(name)])),
);

function clientOf(names) {
  const client = new x402Client();
  if (names.includes("circle")) registerBatchScheme(client, { signer: families.evm.signer });
  for (const [version, network, scheme] of names.flatMap((name) => schemes[name] ?? [])) {
    if (version === 1) client.registerV1(network, scheme);
    else client.register(network, scheme);
  }
  client.setSpendControls(false);
  return client;
}

async function answer(question) {
  if (question === "registered")
    return Object.values(schemes)
      .flat()
      .map(([version, network, { scheme }]) => [version, network, scheme]);
  const http = new x402HTTPClient(clientOf(question.families ?? installed));
  try {
    const asked = http.getPaymentRequiredResponse(
      (name) => (name === "PAYMENT-REQUIRED" ? question.header : null),
      question.body,
    );
    await http.createPaymentPayload(asked);
    return "";
  } catch (error) {
    return String(error?.message ?? error) || "refused";
  }
}

const answers = [];
for (const question of JSON.parse(readFileSync(0, "utf8"))) answers.push(await answer(question));
process.stdout.write(JSON.stringify(answers));
