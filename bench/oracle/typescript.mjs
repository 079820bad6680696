// Which 402s the official TypeScript clients would pay, with every scheme that the installed packages
// export. Reads a JSON array of {header, body, client} from standard input. The header or the body may
// be null; client is a package such as "evm", or "circle" for Circle's GatewayClient. Writes a JSON
// array of texts: empty if the client signed a payment, otherwise the reason. For the input "tables",
// the result is an object with the constants of the packages. The only requests go to the node at
// STUB_NODE.
import { readFileSync, readdirSync } from "node:fs";
import { CHAIN_CONFIGS, GatewayClient } from "@circle-fin/x402-batching/client";
import { createKeyPairSignerFromPrivateKeyBytes } from "@solana/kit";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { privateKeyToAccount } from "viem/accounts";

const packages = new URL("../../node_modules/@x402/", import.meta.url);
const rpcUrl = process.env.STUB_NODE;
const privateKey = "0x" + "11".repeat(32);
const families = {
  evm: { pattern: "eip155:*", signer: privateKeyToAccount(privateKey) },
  svm: {
    pattern: "solana:*",
    signer: await createKeyPairSignerFromPrivateKeyBytes(new Uint8Array(32).fill(17)),
  },
};

// [version, network or pattern, scheme's client] of every client that a package exports.
async function schemesOf(name) {
  const found = [];
  for (const path of clientsOf(name)) {
    const { pattern, signer } = families[name]; // an unknown family fails here
    const version = path.includes("/v1/") ? 1 : 2;
    for (const [label, Scheme] of Object.entries(await import(`@x402/${name}${path.slice(1)}`))) {
      if (!/Scheme(V1)?$/.test(label) || label.startsWith("register")) continue;
      const { NETWORKS } = await import(`@x402/${name}/v1`);
      for (const network of version === 1 ? NETWORKS : [pattern])
        found.push([version, network, new Scheme(signer, { rpcUrl })]);
    }
  }
  return found;
}

// The paths of a package that export clients of schemes, such as "./exact/client".
function clientsOf(name) {
  return Object.keys(manifestOf(`@x402/${name}`).exports).filter((path) => /\/.+\/client$/.test(path));
}

function manifestOf(name) {
  return JSON.parse(readFileSync(new URL(`../${name}/package.json`, packages)));
}

const installed = readdirSync(packages).filter((name) => clientsOf(name).length > 0);
const schemes = Object.fromEntries(
  await Promise.all(installed.map(async (name) => [name, await schemesOf(name)])),
);

function officialClient(family) {
  const client = new x402Client();
  for (const [version, network, scheme] of schemes[family]) {
    if (version === 1) client.registerV1(network, scheme);
    else client.register(network, scheme);
  }
  client.setSpendControls(false);
  return new x402HTTPClient(client);
}

const clients = Object.fromEntries(installed.map((name) => [name, officialClient(name)]));
const gateways = Object.entries(CHAIN_CONFIGS).map(([chain, config]) => [
  `eip155:${config.chain.id}`,
  new GatewayClient({ chain, privateKey, rpcUrl }),
]);

async function pay({ header, body, client }) {
  const read = (name) => (name === "PAYMENT-REQUIRED" ? header : null);
  const asked = clients[client].getPaymentRequiredResponse(read, body);
  await clients[client].createPaymentPayload(asked);
}

// GatewayClient sends its own requests, so they are answered here. It is for one chain.
async function payGateway({ header }) {
  let reason = "no gateway client";
  for (const [network, gateway] of gateways) {
    if (!Buffer.from(header ?? "", "base64").toString().includes(`"${network}"`)) continue;
    let signed = false;
    globalThis.fetch = async (_, { headers }) => {
      signed = "Payment-Signature" in headers;
      return signed
        ? new Response("{}")
        : new Response("{}", { status: 402, headers: header ? { "PAYMENT-REQUIRED": header } : {} });
    };
    try {
      await gateway.pay("https://api.example.com/weather");
    } catch (error) {
      reason = reasonOf(error);
    }
    if (signed) return;
  }
  throw new Error(reason);
}

async function tables() {
  const [evm, svm] = await Promise.all([import("@x402/evm"), import("@x402/svm")]);
  const { EVM_NETWORK_CHAIN_ID_MAP } = await import("@x402/evm/v1");
  const names = Object.entries(EVM_NETWORK_CHAIN_ID_MAP).map(([name, id]) => [name, `eip155:${id}`]);
  const addresses = (pattern) =>
    Object.entries(evm).flatMap(([name, value]) => (pattern.test(name) ? [value] : []));
  return {
    versions: Object.fromEntries(
      [...installed.map((name) => `@x402/${name}`), "@x402/core", "@circle-fin/x402-batching"].map(
        (name) => [name, manifestOf(name).version],
      ),
    ),
    schemes: Object.values(schemes)
      .flat()
      .map(([version, network, { scheme }]) => [version, network, scheme]),
    v1Networks: { ...Object.fromEntries(names), ...svm.V1_TO_V2_NETWORK_MAP },
    assets: { ...evm.DEFAULT_ASSETS, ...svm.DEFAULT_ASSETS },
    contracts: addresses(/^(PERMIT2_ADDRESS|BATCH_SETTLEMENT_ADDRESS|x402\w+ProxyAddress)$/),
    escrows: addresses(/^AUTH_CAPTURE_ESCROW_V\w+_ADDRESS$/),
    tokenPrograms: [svm.TOKEN_PROGRAM_ADDRESS, svm.TOKEN_2022_PROGRAM_ADDRESS],
    memoBytes: svm.MAX_MEMO_BYTES,
    gatewayNetworks: gateways.map(([network]) => network),
  };
}

const reasonOf = (error) => String(error?.message ?? error) || "refused";

async function answer(question) {
  if (question === "tables") return tables();
  try {
    await (question.client === "circle" ? payGateway(question) : pay(question));
    return "";
  } catch (error) {
    return reasonOf(error);
  }
}

const fetchDirectly = globalThis.fetch;
const answers = [];
for (const question of JSON.parse(readFileSync(0, "utf8"))) {
  globalThis.fetch = fetchDirectly;
  answers.push(await answer(question));
}
process.stdout.write(JSON.stringify(answers));
