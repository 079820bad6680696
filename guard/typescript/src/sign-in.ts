/**
 * sign-in-with-x: asks for the answer to a payment that was made, before anything is paid again.
 *
 * The message is the one of EIP-4361, or the same for Solana, and is bound to the origin that asks, so
 * it pays nothing and opens no other site. The rules are cases in guard/cases/sign_in.json.
 */

import { encodeBase58 } from "./address.js";
import { decoded, members } from "./json.js";

export const SIGN_IN = "sign-in-with-x";

/** An EVM account that may sign in, such as one of viem. */
export interface EvmSignInAccount {
  readonly address: string;
  signMessage(parameters: { readonly message: string }): Promise<string>;
}

/** A Solana account that may sign in, such as a `KeyPairSigner` of `@solana/kit`. */
export interface SolanaSignInAccount {
  readonly address: string;
  signMessages(
    messages: readonly { readonly content: Uint8Array; readonly signatures: object }[],
  ): Promise<readonly Readonly<Record<string, Uint8Array>>[]>;
}

export type SignInAccount = EvmSignInAccount | SolanaSignInAccount;

/** The signed message, and the fields that are sent with the signature. */
export interface Challenge {
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const TEXTS = ["domain", "uri", "version", "nonce", "issuedAt"] as const;
const OPTIONAL = ["statement", "expirationTime", "notBefore", "requestId"] as const;
/** How an account signs on its networks. */
const EVM = { type: "eip191", chain: /^eip155:[1-9][0-9]{0,18}$/, name: "Ethereum" };
const SOLANA = { type: "ed25519", chain: /^solana:[1-9A-HJ-NP-Za-km-z]{32}$/, name: "Solana" };
/** EIP-4361: a line break would let a text look like another field. */
const LINE = /^[^\x00-\x1f\x7f]+$/;

/**
 * The challenge of a 402 (the value of its header) that came from `url`, for an account; null if
 * there is none for its kind of network, or if it is not bound to that origin.
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
  const kind = address.startsWith("0x") ? EVM : SOLANA;
  const fitting = chains.filter(
    ({ type, chainId }) => type === kind.type && kind.chain.test(String(chainId)),
  );
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
  const stated = statement === undefined ? [] : [statement, ""];
  // EIP-4361 has an empty line for a missing statement, the form for Solana has none.
  const blank = statement === undefined && kind === EVM ? [""] : [];
  const lines = [
    `${String(domain)} wants you to sign in with your ${kind.name} account:`,
    ...[address, "", ...stated, ...blank],
    ...[`URI: ${String(uri)}`, `Version: ${String(version)}`],
    ...[`Chain ID: ${String(chain["chainId"]).split(":")[1]}`, `Nonce: ${String(nonce)}`],
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

/** Signs a challenge, and returns the value of the header that carries it. */
export async function signInHeader(
  account: SignInAccount,
  { message, fields }: Challenge,
): Promise<string> {
  const signature =
    "signMessages" in account
      ? await signForSolana(account, message)
      : await account.signMessage({ message });
  return Buffer.from(JSON.stringify({ ...fields, signature })).toString("base64");
}

async function signForSolana(account: SolanaSignInAccount, message: string): Promise<string> {
  const content = new TextEncoder().encode(message);
  const [signed] = await account.signMessages([{ content, signatures: {} }]);
  return encodeBase58(signed![account.address]!);
}

function isBound({ domain, uri }: Readonly<Record<string, unknown>>, url: string): boolean {
  if (!URL.canParse(url) || !URL.canParse(String(uri))) return false;
  const asked = new URL(url);
  return domain === asked.host && new URL(String(uri)).origin === asked.origin;
}
