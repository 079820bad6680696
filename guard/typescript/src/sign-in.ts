/**
 * sign-in-with-x: asks for the answer to a payment that was made, before anything is paid again.
 *
 * The message is the one of EIP-4361 and is bound to the origin that asks, so it pays nothing and
 * opens no other site. The rules are cases in guard/cases/sign_in.json.
 */

import { decoded, members } from "./json.js";

export const SIGN_IN = "sign-in-with-x";

/** The account that may sign in, such as one of viem. */
export interface SignInAccount {
  readonly address: string;
  signMessage(parameters: { readonly message: string }): Promise<string>;
}

/** The signed message, and the fields that are sent with the signature. */
export interface Challenge {
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const TEXTS = ["domain", "uri", "version", "nonce", "issuedAt"] as const;
const OPTIONAL = ["statement", "expirationTime", "notBefore", "requestId"] as const;
const CHAIN = /^eip155:[1-9][0-9]{0,18}$/;
/** EIP-4361: a line break would let a text look like another field. */
const LINE = /^[^\x00-\x1f\x7f]+$/;

/**
 * The challenge of a 402 (the value of its header) that came from `url`, for an EVM account; null if
 * there is none, or if it is not bound to that origin.
 */
export function readChallenge(
  header: string | null,
  url: string,
  address: string,
  network: string,
): Challenge | null {
  const { extensions } = members(decoded(header ?? ""));
  const { info: declared, supportedChains } = members(members(extensions)[SIGN_IN]);
  const info = members(declared);
  const chains = (Array.isArray(supportedChains) ? (supportedChains as unknown[]) : []).map(members);
  const fitting = chains.filter(({ type, chainId }) => type === "eip191" && CHAIN.test(String(chainId)));
  const chain = fitting.find(({ chainId }) => chainId === network) ?? fitting[0];
  const { resources = [] } = info;
  const isLine = (value: unknown): boolean => typeof value === "string" && LINE.test(value);
  const isWhole =
    TEXTS.every((name) => isLine(info[name])) &&
    OPTIONAL.every((name) => info[name] === undefined || isLine(info[name])) &&
    Array.isArray(resources) &&
    resources.every(isLine);
  if (chain === undefined || !isWhole || !isBound(info, url)) return null;
  const { domain, uri, version, nonce, issuedAt, statement, expirationTime, notBefore, requestId } =
    info;
  const lines = [
    `${String(domain)} wants you to sign in with your Ethereum account:`,
    ...[address, "", ...(statement === undefined ? [] : [statement]), ""],
    ...[`URI: ${String(uri)}`, `Version: ${String(version)}`],
    ...[`Chain ID: ${String(chain["chainId"]).slice("eip155:".length)}`, `Nonce: ${String(nonce)}`],
    `Issued At: ${String(issuedAt)}`,
    ...(expirationTime === undefined ? [] : [`Expiration Time: ${String(expirationTime)}`]),
    ...(notBefore === undefined ? [] : [`Not Before: ${String(notBefore)}`]),
    ...(requestId === undefined ? [] : [`Request ID: ${String(requestId)}`]),
    ...(resources.length === 0 ? [] : ["Resources:", ...resources.map((one) => `- ${one}`)]),
  ];
  const named = [...TEXTS, ...OPTIONAL, "resources"].filter((name) => info[name] !== undefined);
  const fields = Object.fromEntries(named.map((name) => [name, info[name]]));
  const { chainId, type, signatureScheme } = chain;
  const scheme = signatureScheme === undefined ? {} : { signatureScheme };
  return { message: lines.join("\n"), fields: { ...fields, address, chainId, type, ...scheme } };
}

/** The value of the header that carries a signed challenge. */
export function signInHeader({ fields }: Challenge, signature: string): string {
  return Buffer.from(JSON.stringify({ ...fields, signature })).toString("base64");
}

function isBound({ domain, uri }: Readonly<Record<string, unknown>>, url: string): boolean {
  if (!URL.canParse(url) || !URL.canParse(String(uri))) return false;
  const asked = new URL(url);
  return domain === asked.host && new URL(String(uri)).origin === asked.origin;
}
