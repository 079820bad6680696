/**
 * Whether an authorization was used, by a JSON-RPC node that the owner of the wallet named.
 *
 * An EIP-3009 authorization is used if the token says so at any block. It is dead if the token says
 * that it is unused at a block whose time is past its validity and that is deep enough. Anything
 * else, an error of the node included, decides nothing.
 */

import { members } from "./json.js";

/** What a node shows of an authorization. */
export type Evidence = "used" | "dead" | "unknown";

/** An authorization on a chain. */
export interface Authorization {
  /** CAIP-2. */
  readonly network: string;
  readonly asset: string;
  readonly payer: string;
  readonly nonce: string;
  /** Unix seconds. */
  readonly validBefore: number;
  readonly microUsd: bigint;
}

/** How many blocks must follow the one that shows a payment of up to DEPTH_MAX unused. */
const DEPTH = 12n;
/** A larger payment (micro-dollars) must be unused at the block that the chain calls final. */
const DEPTH_MAX = 1_000_000n;
const TIMEOUT_MS = 3000;
const ANSWER_MAX = 1_048_576;
/** `authorizationState(address,bytes32)` of EIP-3009. */
const AUTHORIZATION_STATE = "0xe94a0102";

/** Asks a node what became of an authorization. Never throws. */
export async function findEvidence(node: string, payment: Authorization): Promise<Evidence> {
  try {
    return await evidence(node, payment);
  } catch {
    return "unknown";
  }
}

async function evidence(node: string, payment: Authorization): Promise<Evidence> {
  const [chain, newest, isUsed] = await Promise.all([
    call(node, "eth_chainId", []),
    call(node, "eth_blockNumber", []),
    isUsedAt(node, payment, "latest"),
  ]);
  // A node of another chain would show every authorization unused.
  if (`eip155:${quantity(chain)}` !== payment.network) return "unknown";
  if (isUsed) return "used";
  const isSmall = payment.microUsd <= DEPTH_MAX;
  const deep = quantity(newest) - DEPTH;
  if (isSmall && deep < 0n) return "unknown";
  const tag = isSmall ? `0x${deep.toString(16)}` : "finalized";
  const { number, timestamp } = members(await call(node, "eth_getBlockByNumber", [tag, false]));
  if (quantity(timestamp) < BigInt(payment.validBefore)) return "unknown";
  const block = `0x${quantity(number).toString(16)}`;
  return (await isUsedAt(node, payment, block)) ? "used" : "dead";
}

async function isUsedAt(node: string, payment: Authorization, block: string): Promise<boolean> {
  const { asset, payer, nonce } = payment;
  const data = `${AUTHORIZATION_STATE}${payer.slice(2).padStart(64, "0")}${nonce.slice(2)}`;
  const word = await call(node, "eth_call", [{ to: asset, data }, block]);
  // A contract that is not there answers 0x, which does not mean unused.
  if (typeof word !== "string" || !/^0x0{63}[01]$/.test(word)) throw new TypeError("No boolean.");
  return word.endsWith("1");
}

async function call(node: string, method: string, params: readonly unknown[]): Promise<unknown> {
  const answer = await fetch(node, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    redirect: "error",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const text = await limitedText(answer);
  const { error, result } = members(JSON.parse(text));
  if (!answer.ok || (error !== undefined && error !== null)) throw new TypeError("No result.");
  return result;
}

async function limitedText(answer: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of (answer.body ?? []) as AsyncIterable<Uint8Array>) {
    length += chunk.length;
    if (length > ANSWER_MAX) throw new TypeError("The node's answer is too long.");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function quantity(value: unknown): bigint {
  if (typeof value !== "string" || !/^0x[0-9a-fA-F]{1,64}$/.test(value)) {
    throw new TypeError("No quantity.");
  }
  return BigInt(value);
}
