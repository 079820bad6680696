/**
 * Reads from the owner's JSON-RPC nodes what happened to a payment.
 *
 * There is no default node, and without one nothing is assumed dead. A node that fails, answers for
 * another chain or in another form proves nothing. Chain time is used, never the local clock.
 */

import {
  type BlockReading,
  combine,
  MAX_SHALLOW_EXPOSURE,
  MIN_DEPTH,
  proveEvm,
  proveSolana,
} from "./evidence.js";
import { members, parsed } from "./json.js";
import type { Evidence, Payment } from "./payment-state.js";

/** JSON-RPC URLs by network (CAIP-2); with several, all of them must show a payment dead. */
export type Nodes = Readonly<Record<string, string | readonly string[]>>;

/** The evidence of the nodes, and the settled amount (atomic units) if they show one. */
export interface Reading {
  readonly evidence: Evidence;
  readonly settled: bigint | null;
}

const PERMIT2 = "0x000000000022d473030f116ddee9f6b43ac78ba3";
const TIMEOUT_MS = 3000;
const MAX_ANSWER_BYTES = 4_194_304;
/** `authorizationState(address,bytes32)` of EIP-3009. */
const AUTHORIZATION_STATE = "0xe94a0102";
/** `nonceBitmap(address,uint256)` of Permit2. */
const NONCE_BITMAP = "0x4fe02b44";
const TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const LOG_BLOCKS = 5000n;
/** The most that a node lists at a time. */
const MAX_SIGNATURES = 1000;
/** Block times are estimates. */
const BLOCK_TIME_SLACK_S = 600;
const UNKNOWN: Reading = { evidence: "unknown", settled: null };

export class NodeReader {
  readonly #nodes: ReadonlyMap<string, readonly string[]>;

  /** Throws TypeError for a value that is not an HTTP URL of a network. */
  constructor(nodes: Nodes = {}) {
    const pairs = Object.entries(nodes).map(
      ([network, urls]) => [network, typeof urls === "string" ? [urls] : [...urls]] as const,
    );
    for (const [network, urls] of pairs) {
      const isNetwork = /^(eip155:[1-9][0-9]*|solana:[1-9A-HJ-NP-Za-km-z]{32})$/.test(network);
      const isUrls = urls.every((url) => URL.canParse(url) && /^https?:$/.test(new URL(url).protocol));
      if (!isNetwork || !isUrls) {
        throw new TypeError('nodes must be { "eip155:8453": "https://…" }: JSON-RPC URLs.');
      }
    }
    this.#nodes = new Map(pairs);
  }

  /** Reads a payment from all nodes of its network, or from the URL that is given. Never throws. */
  async read(payment: Payment, url?: string): Promise<Reading> {
    const urls = url === undefined ? (this.#nodes.get(payment.network) ?? []) : [url];
    const readings = await Promise.all(urls.map((one) => readNode(one, payment)));
    const amounts = readings.map(({ settled }) => settled).filter((one) => one !== null);
    // The highest amount: a node must not reduce the spent amount.
    const settled = amounts.reduce<bigint | null>(
      (most, one) => (most === null || one > most ? one : most),
      null,
    );
    return { evidence: combine(readings.map(({ evidence }) => evidence)), settled };
  }

  /**
   * The Solana height until which a payment signed now is valid; null if it is not known. Of
   * several nodes the highest, because it is an upper bound. Never throws.
   */
  async lastValidHeight(network: string): Promise<number | null> {
    const urls = this.#nodes.get(network) ?? [];
    try {
      const heights = await Promise.all(urls.map(readLastValidHeight));
      return heights.length === 0 ? null : Math.max(...heights);
    } catch {
      return null;
    }
  }
}

async function readNode(url: string, payment: Payment): Promise<Reading> {
  if (payment.nonce === null) return UNKNOWN;
  try {
    if (payment.method === "solana") return await readSolana(url, payment);
    const isEvm = payment.method === "eip3009" || payment.method === "permit2";
    return isEvm ? await readEvm(url, payment, BigInt(payment.nonce)) : UNKNOWN;
  } catch {
    return UNKNOWN;
  }
}

async function readLastValidHeight(url: string): Promise<number> {
  const answer = members(await call(url, "getLatestBlockhash", { commitment: "processed" }));
  return height(members(answer["value"])["lastValidBlockHeight"]);
}

async function readSolana(url: string, payment: Payment): Promise<Reading> {
  const { account, signature } = members(parsed(payment.evidence ?? ""));
  const genesis = String(await call(url, "getGenesisHash"));
  if (`solana:${genesis.slice(0, 32)}` !== payment.network) return UNKNOWN;
  // The height is read first: what lands after it is too late, what landed before is scanned.
  const finalized = height(await call(url, "getBlockHeight", { commitment: "finalized" }));
  const isFound = await scanSolana(url, String(account), String(signature), payment.at);
  return { evidence: proveSolana(isFound, finalized, payment.validHeight), settled: null };
}

/**
 * Looks for the payer's signature in the transactions of a token account, newest first: the ID of a
 * transaction is the signature of its fee payer, which is not known here. Null if not all
 * transactions since then could be read.
 */
async function scanSolana(
  url: string,
  account: string,
  signature: string,
  since: number,
): Promise<boolean | null> {
  const commitment = "confirmed";
  const page = { commitment, limit: MAX_SIGNATURES };
  const rows = (await call(url, "getSignaturesForAddress", account, page)) as unknown[];
  const options = { commitment, encoding: "json", maxSupportedTransactionVersion: 0 };
  for (const row of rows) {
    const { blockTime, signature: id } = members(row);
    if (typeof blockTime === "number" && blockTime < since - BLOCK_TIME_SLACK_S) return false;
    const found = await call(url, "getTransaction", id, options);
    if (found === null) return null;
    const { transaction, meta } = members(found);
    const signatures = members(transaction)["signatures"] as unknown[];
    // A failed transaction moved nothing, and cannot land again.
    if (signatures.includes(signature)) return members(meta)["err"] === null;
  }
  return rows.length >= MAX_SIGNATURES ? null : false;
}

async function readEvm(url: string, payment: Payment, nonce: bigint): Promise<Reading> {
  const [chain, newest, isUsed] = await Promise.all([
    call(url, "eth_chainId"),
    call(url, "eth_blockNumber").then(quantity),
    isUsedAt(url, payment, nonce, "latest"),
  ]);
  // A node of another chain would show every authorization unused.
  if (`eip155:${quantity(chain)}` !== payment.network) return UNKNOWN;
  if (isUsed) return { evidence: "used", settled: await settledAmount(url, payment, newest) };
  const block = await readBlock(url, payment, nonce, newest);
  // EIP-3009 requires block.timestamp < validBefore, Permit2 block.timestamp <= deadline.
  const deadFrom = payment.validBefore + (payment.method === "permit2" ? 1 : 0);
  return { evidence: proveEvm(false, block, deadFrom, payment.exposure), settled: null };
}

async function readBlock(
  url: string,
  payment: Payment,
  nonce: bigint,
  newest: bigint,
): Promise<BlockReading | null> {
  const isSmall = payment.exposure <= MAX_SHALLOW_EXPOSURE;
  const deep = newest - BigInt(MIN_DEPTH);
  if (isSmall && deep < 0n) return null;
  try {
    const tag = isSmall ? hex(deep) : "finalized";
    const block = members(await call(url, "eth_getBlockByNumber", tag, false));
    const number = quantity(block["number"]);
    if (isSmall && number !== deep) return null;
    return {
      timestamp: Number(quantity(block["timestamp"])),
      depth: Number(newest - number),
      isFinalized: !isSmall,
      isUsed: await isUsedAt(url, payment, nonce, hex(number)),
    };
  } catch {
    return null;
  }
}

async function isUsedAt(
  url: string,
  payment: Payment,
  nonce: bigint,
  block: string,
): Promise<boolean> {
  const payer = padded(payment.payer);
  if (payment.method === "eip3009") {
    const data = `${AUTHORIZATION_STATE}${payer}${word(nonce)}`;
    const state = await callContract(url, payment.asset, data, block);
    if (state > 1n) throw new TypeError("Not a boolean.");
    return state === 1n;
  }
  const data = `${NONCE_BITMAP}${payer}${word(nonce >> 8n)}`;
  const bitmap = await callContract(url, PERMIT2, data, block);
  return ((bitmap >> (nonce & 0xffn)) & 1n) === 1n;
}

async function callContract(url: string, to: string, data: string, block: string): Promise<bigint> {
  const answer = await call(url, "eth_call", { to, data }, block);
  // A contract that is not there answers 0x, which does not mean unused.
  if (typeof answer !== "string" || !/^0x[0-9a-fA-F]{64}$/.test(answer)) {
    throw new TypeError("Not a word.");
  }
  return BigInt(answer);
}

/** The amount that an `upto` payment moved, or null if it was not found. */
async function settledAmount(url: string, payment: Payment, newest: bigint): Promise<bigint | null> {
  if (payment.scheme !== "upto") return null;
  const from = newest > LOG_BLOCKS ? newest - LOG_BLOCKS : 0n;
  const topics = [TRANSFER, `0x${padded(payment.payer)}`, `0x${padded(payment.payTo)}`];
  const wanted = { address: payment.asset, fromBlock: hex(from), toBlock: "latest", topics };
  try {
    for (const log of (await call(url, "eth_getLogs", wanted)) as unknown[]) {
      const { transactionHash, data } = members(log);
      const transaction = await call(url, "eth_getTransactionByHash", transactionHash);
      // The nonce in the call data binds a transfer to this payment.
      const input = String(members(transaction)["input"]).toLowerCase();
      if (!input.includes(String(payment.nonce).slice(2))) continue;
      const moved = quantity(data);
      const ceiling = BigInt(payment.amount);
      return moved < ceiling ? moved : ceiling;
    }
  } catch {
    // Without a log the ceiling stays counted.
  }
  return null;
}

async function call(url: string, method: string, ...params: readonly unknown[]): Promise<unknown> {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    redirect: "manual",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const { error, result } = members(JSON.parse(await limitedText(answer)));
  if (!answer.ok || (error !== undefined && error !== null)) throw new TypeError("No result.");
  return result;
}

async function limitedText(answer: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of (answer.body ?? []) as AsyncIterable<Uint8Array>) {
    length += chunk.length;
    if (length > MAX_ANSWER_BYTES) throw new TypeError("The node's answer is too long.");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function quantity(value: unknown): bigint {
  if (typeof value !== "string" || !/^0x[0-9a-fA-F]{1,64}$/.test(value)) {
    throw new TypeError("Not a quantity.");
  }
  return BigInt(value);
}

function height(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw new TypeError("Not a height.");
  return Number(value);
}

const hex = (value: bigint): string => `0x${value.toString(16)}`;
const word = (value: bigint): string => value.toString(16).padStart(64, "0");
const padded = (address: string): string => address.slice(2).padStart(64, "0");
