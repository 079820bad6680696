// Writes signed_offers.json: offers as the official extension signs them, and contradictions.
// node guard/cases/signed_offers_cases.mjs
import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createOfferEIP712, createOfferJWS } from "@x402/extensions/offer-receipt";
import { privateKeyToAccount } from "viem/accounts";

export const FILE = new URL("./signed_offers.json", import.meta.url);
const NOW = 1_767_225_600;
const URL_ASKED = "https://api.example.com/v1/weather";
const DID = "did:web:api.example.com";
const payee = privateKeyToAccount(`0x${"11".repeat(32)}`);
const thief = privateKeyToAccount(`0x${"12".repeat(32)}`);
const hosted = privateKeyToAccount(`0x${"13".repeat(32)}`);

function ed25519(byte) {
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, byte)]);
  const key = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
  const { kty, crv, x } = createPublicKey(key).export({ format: "jwk" });
  return { jwk: { kty, crv, x }, sign: async (bytes) => sign(null, Buffer.from(bytes), key).toString("base64url") };
}
const own = ed25519(1);
const other = ed25519(2);
const documentOf = (id) => ({
  id: DID,
  verificationMethod: [
    { id, type: "JsonWebKey2020", controller: DID, publicKeyJwk: own.jwk },
    { id: "#account", controller: DID, blockchainAccountId: `eip155:1:${hosted.address}` },
  ],
});

const entry = (changes = {}) => ({
  ...{ scheme: "exact", network: "eip155:8453", asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" },
  ...{ payTo: payee.address, amount: "5000", maxTimeoutSeconds: 60, ...changes },
});
const input = (index, changes) => ({ acceptIndex: index, ...entry(changes), offerValiditySeconds: 600 });
const byAccount = (account, index, changes) =>
  createOfferEIP712(URL_ASKED, input(index, changes), (data) => account.signTypedData(data));
const byKey = (key, kid, index, changes) =>
  createOfferJWS(URL_ASKED, input(index, changes), { kid, format: "jws", algorithm: "EdDSA", sign: key.sign });
const without = ({ acceptIndex: _index, ...offer }) => offer;

async function cases() {
  const one = [entry()];
  const two = [entry({ payTo: thief.address }), entry()];
  const moved = [entry({ payTo: thief.address })];
  const kid = `${DID}#key-1`;
  const host = documentOf(kid);
  const good = await byAccount(payee, 0);
  return [
    ["no signed offer", one, [], null, []],
    ["signed by the payTo", one, [good], null, []],
    ["addresses in another case", [entry({ payTo: payee.address.toLowerCase() })], [good], null, []],
    ["signed by an unknown account", one, [await byAccount(thief, 0)], host, []],
    ["the 402 has another payTo than its payTo signed", moved, [good], null, [0]],
    ["the 402 has another amount", [entry({ amount: "5001" })], [good], null, [0]],
    ["the entry of the index is contradicted", two, [await byAccount(payee, 0, { amount: "1" })], null, [0]],
    ["the index is a hint", two, [await byAccount(payee, 0)], null, []],
    ["all entries are contradicted without an index", two, [without(await byAccount(payee, 0, { amount: "1" }))], null, [0, 1]],
    ["an index that is not in the 402", one, [await byAccount(payee, 7, { amount: "1" })], null, [0]],
    ["an unknown signer contradicts nothing", moved, [await byAccount(hosted, 0)], null, []],
    ["an account of the host is known", moved, [await byAccount(hosted, 0)], host, [0]],
    ["an account of the host signed the offer", one, [await byAccount(hosted, 0)], host, []],
    ["a signature that recovers to an unknown account", one, [{ ...good, signature: `${good.signature.slice(0, -4)}001b` }], null, []],
    ["an invalid signature", moved, [{ ...good, signature: "0x" }], null, []],
    ["a payload that was changed after it was signed", moved, [{ ...good, payload: { ...good.payload, payTo: thief.address } }], null, []],
    ["signed by a key of the host", one, [await byKey(own, kid, 0)], host, []],
    ["a key of the host contradicts", moved, [await byKey(own, kid, 0)], host, [0]],
    ["a relative ID of a key", moved, [await byKey(own, kid, 0)], documentOf("#key-1"), [0]],
    ["another key than the host's signed in its name", one, [await byKey(other, kid, 0)], host, [0]],
    ["a key that the host does not publish", moved, [await byKey(other, `${DID}#key-2`, 0)], host, []],
    ["the host publishes no keys", moved, [await byKey(own, kid, 0)], null, []],
    ["a key of another host", moved, [await byKey(own, "did:web:evil.example.net#key-1", 0)], host, []],
    ["an invalid document", moved, [await byKey(own, kid, 0)], { verificationMethod: 7 }, []],
    ["invalid offers", one, [7, null, {}, { format: "jws", signature: "a.b" }, { format: "eip712" }], host, []],
  ].map(([name, accepts, offers, did, contradicted]) => ({ name, url: URL_ASKED, accepts, offers, did, contradicted }));
}

/** The text of signed_offers.json: the same each time. */
export async function document() {
  const { now } = Date;
  Date.now = () => NOW * 1000;
  try {
    return `[\n${(await cases()).map((one) => JSON.stringify(one)).join(",\n")}\n]\n`;
  } finally {
    Date.now = now;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(FILE, await document());
