/**
 * Signed offers: whether a seller's own signature contradicts what its 402 asks for.
 *
 * In the extension `offer-receipt` a seller signs its offers: as EIP-712 by an account, or as JWS by a
 * key of its host (did:web). Only a known signer counts: the payTo that it signed, or the host. The
 * rules are cases in guard/cases/signed_offers.json.
 */

import { createPublicKey, type JsonWebKey, verify } from "node:crypto";
import { decoded, members, parsed } from "./json.js";

const EXTENSION = "offer-receipt";
const MAX_OFFERS = 32;
const MAX_DOCUMENT_BYTES = 65_536;
const TIMEOUT_MS = 3000;
const TERMS = ["scheme", "network", "asset", "payTo", "amount"] as const;
const TYPES = {
  Offer: [
    { name: "version", type: "uint256" },
    ...["resourceUrl", ...TERMS].map((name) => ({ name, type: "string" })),
    { name: "validUntil", type: "uint256" },
  ],
} as const;
const CURVES: Readonly<Record<string, string>> = { ES256: "P-256", ES256K: "secp256k1" };

/** Is installed with every EVM client of the SDK; without it the signers of EIP-712 are unknown. */
const VIEM: string = "viem";
interface Viem {
  recoverTypedDataAddress(parameters: object): Promise<string>;
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * The signed offer, and whether a known signer signed it. Null: the signer is unknown. False: it is
 * not the signature of the key that it names.
 */
interface ReadOffer {
  readonly payload: Fields;
  readonly isKnown: boolean | null;
}
const UNKNOWN: ReadOffer = { payload: {}, isKnown: null };

/** The terms of an entry of `accepts` in a comparable form. */
export function termsOf(entry: unknown): string {
  const fields = members(entry);
  const values = TERMS.map((name) => String(fields[name]));
  return JSON.stringify(values.map((one) => (one.startsWith("0x") ? one.toLowerCase() : one)));
}

/**
 * The terms of the entries of a 402 at `url` that a known signer contradicts. Reads the did.json of
 * the host if a signer is not known without it. Never throws.
 */
export async function checkOffers(required: unknown, url: string | null): Promise<Set<string>> {
  const { extensions, accepts } = members(required);
  if (url === null || !Object.hasOwn(members(extensions), EXTENSION)) return new Set();
  const without = await readAll(extensions, url, null);
  const isUnknown = without.some(({ isKnown }) => isKnown === null);
  const document = isUnknown ? await fetchDocument(url) : null;
  return findContradicted(extensions, accepts, url, document);
}

/** The same with the content of the did.json, null if it is not known. */
export async function findContradicted(
  extensions: unknown,
  accepts: unknown,
  url: string,
  document: unknown,
): Promise<Set<string>> {
  const sold = (Array.isArray(accepts) ? (accepts as unknown[]) : []).map(termsOf);
  const found = new Set<string>();
  for (const { payload, isKnown, index } of await readAll(extensions, url, document)) {
    if (isKnown === null || (isKnown && sold.includes(termsOf(payload)))) continue;
    const one = Number.isSafeInteger(index) ? sold[Number(index)] : undefined;
    for (const terms of one === undefined ? sold : [one]) found.add(terms);
  }
  return found;
}

function readAll(
  extensions: unknown,
  url: string,
  document: unknown,
): Promise<(ReadOffer & { readonly index: unknown })[]> {
  const { offers } = members(members(members(extensions)[EXTENSION])["info"]);
  const listed = (Array.isArray(offers) ? (offers as unknown[]) : []).slice(0, MAX_OFFERS);
  const did = `did:web:${encodeURIComponent(new URL(url).host)}`;
  return Promise.all(
    listed.map(members).map(async (offer) => {
      const read = await readOffer(offer, did, document).catch(() => UNKNOWN);
      return { ...read, index: offer["acceptIndex"] };
    }),
  );
}

async function readOffer(offer: Fields, did: string, document: unknown): Promise<ReadOffer> {
  const signature = String(offer["signature"]);
  if (offer["format"] === "eip712") {
    const payload = members(offer["payload"]);
    const signer = await recoverSigner(payload, signature);
    const accounts = [String(payload["payTo"]).toLowerCase(), ...accountsOf(document)];
    return { payload, isKnown: accounts.includes(signer) ? true : null };
  }
  const [header = "", body = "", mark = ""] = signature.split(".");
  const { kid, alg } = members(decoded(header));
  const payload = members(decoded(body));
  const isOwn = offer["format"] === "jws" && String(kid).split("#")[0] === did;
  const jwk = isOwn ? jwkOf(document, did, String(kid)) : null;
  return { payload, isKnown: jwk === null ? null : isSigned(`${header}.${body}`, mark, alg, jwk) };
}

/** The account (lower-case hex) that signed an offer. */
async function recoverSigner(payload: Fields, signature: string): Promise<string> {
  const { recoverTypedDataAddress } = (await import(VIEM)) as Viem;
  const { version, validUntil = 0 } = payload;
  const address = await recoverTypedDataAddress({
    domain: { name: "x402 offer", version: "1", chainId: 1 },
    types: TYPES,
    primaryType: "Offer",
    message: { ...payload, version: BigInt(String(version)), validUntil: BigInt(String(validUntil)) },
    signature,
  });
  return address.toLowerCase();
}

/** Whether a key signed a JWS; null if that cannot be checked here. */
function isSigned(text: string, mark: string, alg: unknown, jwk: Fields): boolean | null {
  const { kty, crv, x, y } = jwk;
  const isEd25519 = alg === "EdDSA" && crv === "Ed25519";
  if (!isEd25519 && CURVES[String(alg)] !== crv) return null;
  const key = createPublicKey({ key: { kty, crv, x, y } as JsonWebKey, format: "jwk" });
  const signature = Buffer.from(mark, "base64url");
  const signed = Buffer.from(text);
  if (isEd25519) return verify(null, signed, key, signature);
  return verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature);
}

function methodsOf(document: unknown): Fields[] {
  const { verificationMethod } = members(document);
  return (Array.isArray(verificationMethod) ? (verificationMethod as unknown[]) : []).map(members);
}

function accountsOf(document: unknown): string[] {
  const names = methodsOf(document).map((method) => String(method["blockchainAccountId"]));
  return names.map((name) => String(name.split(":").at(-1)).toLowerCase());
}

function jwkOf(document: unknown, did: string, name: string): Fields | null {
  const found = methodsOf(document).find(({ id, publicKeyJwk }) => {
    const isNamed = id === name || `${did}${String(id)}` === name;
    return isNamed && members(publicKeyJwk) === publicKeyJwk;
  });
  return found === undefined ? null : members(found["publicKeyJwk"]);
}

/** The did.json of the host of a URL, or null if it cannot be read. */
async function fetchDocument(url: string): Promise<unknown> {
  if (!/^https?:/.test(url)) return null;
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const address = new URL("/.well-known/did.json", url);
    const answer = await fetch(address, { redirect: "manual", signal });
    if (!answer.ok || answer.body === null) return null;
    const chunks: Uint8Array[] = [];
    let size = 0;
    // The host may send a body without end.
    for await (const chunk of answer.body) {
      size += chunk.length;
      if (size > MAX_DOCUMENT_BYTES) return null;
      chunks.push(chunk);
    }
    return parsed(Buffer.concat(chunks).toString("utf8"));
  } catch {
    return null;
  }
}
