// A client written from the x402 specification, without its libraries. Like some published clients,
// it uses the short form: it signs an EIP-3009 authorization of the first offer and sends it without
// `accepted` and without the ticket. It sends every payment twice.
// Usage: node stranger.mjs pay BASE_URL PATH BODY, or: node stranger.mjs rotate BASE_URL ROTATE_URL.
// PRIVATE_KEY is the wallet's key. Prints JSON.
import { randomBytes } from "node:crypto";
import { privateKeyToAccount } from "viem/accounts";

const [verb, base, subject, body] = process.argv.slice(2);
const account = privateKeyToAccount(process.env.PRIVATE_KEY);
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

async function signed(offer) {
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

async function pay(path, text) {
  const { terms } = await post(path, text);
  const offer = terms.accepts[0];
  const { scheme, network } = offer;
  const payment = { x402Version: 2, scheme, network, payload: await signed(offer) };
  const header = Buffer.from(JSON.stringify(payment)).toString("base64");
  const first = await post(path, text, { "PAYMENT-SIGNATURE": header });
  const again = await post(path, text, { "PAYMENT-SIGNATURE": header });
  return { offer, header, first, again };
}

async function rotate(url) {
  const at = seconds();
  const [, service, path, watch] = url.match(/^(.*)(\/v1\/watch\/(.*)\/rotate)$/);
  const message = `Rotate the secret of watch ${watch} at ${service}.\nSigned at: ${at}`;
  const signature = await account.signMessage({ message });
  return post(path, JSON.stringify({ signed_at: at, signature }));
}

console.log(JSON.stringify(await (verb === "pay" ? pay(subject, body) : rotate(subject))));
