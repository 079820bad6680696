// A client written from the x402 specification, without its libraries. Like some published clients,
// it uses the short form: it signs an EIP-3009 authorization of the first offer and sends it without
// `accepted` and without the ticket. It sends every payment twice.
// Usage: node stranger.mjs BASE_URL. Each line of standard input is a JSON array: the wallet's key,
// then "pay", a path and a body, or "rotate" and a URL. Prints a line of JSON for each.
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { privateKeyToAccount } from "viem/accounts";

const base = process.argv[2];
const seconds = () => Math.floor(Date.now() / 1000);
const decoded = (header) => header && JSON.parse(Buffer.from(header, "base64").toString());

async function post(path, text, headers = {}) {
  const answer = await fetch(new URL(path, base), {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: text,
  });
  return {
    status: answer.status,
    terms: decoded(answer.headers.get("payment-required")),
    receipt: decoded(answer.headers.get("payment-response")),
    text: await answer.text(),
  };
}

async function signed(account, offer) {
  const message = {
    from: account.address,
    to: offer.payTo,
    value: offer.amount,
    validAfter: "0",
    validBefore: String(seconds() + offer.maxTimeoutSeconds),
    nonce: `0x${randomBytes(32).toString("hex")}`,
  };
  const signature = await account.signTypedData({
    domain: {
      name: offer.extra.name,
      version: offer.extra.version,
      chainId: Number(offer.network.split(":")[1]),
      verifyingContract: offer.asset,
    },
    types: {
      TransferWithAuthorization: [
        { name: "from", type: "address" },
        { name: "to", type: "address" },
        { name: "value", type: "uint256" },
        { name: "validAfter", type: "uint256" },
        { name: "validBefore", type: "uint256" },
        { name: "nonce", type: "bytes32" },
      ],
    },
    primaryType: "TransferWithAuthorization",
    message,
  });
  return { signature, authorization: message };
}

async function pay(account, path, text) {
  const { terms } = await post(path, text);
  const offer = terms.accepts[0];
  const { scheme, network } = offer;
  const payment = { x402Version: 2, scheme, network, payload: await signed(account, offer) };
  const header = Buffer.from(JSON.stringify(payment)).toString("base64");
  const first = await post(path, text, { "PAYMENT-SIGNATURE": header });
  const again = await post(path, text, { "PAYMENT-SIGNATURE": header });
  return { offer, header, first, again };
}

async function rotate(account, url) {
  const at = seconds();
  const [, service, path, watch] = url.match(/^(.*)(\/v1\/watch\/(.*)\/rotate)$/);
  const message = `Rotate the secret of watch ${watch} at ${service}.\nSigned at: ${at}`;
  const signature = await account.signMessage({ message });
  return post(path, JSON.stringify({ signed_at: at, signature }));
}

for await (const line of createInterface({ input: process.stdin })) {
  const [key, verb, ...rest] = JSON.parse(line);
  const done = await (verb === "pay" ? pay : rotate)(privateKeyToAccount(key), ...rest);
  console.log(JSON.stringify(done));
}
