// A simulated chain with a virtual clock, nodes that read it, a facilitator that settles on it, and
// sellers on the official middleware of express and hono.
import { AsyncLocalStorage } from "node:async_hooks";
import { once } from "node:events";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { paymentMiddleware as expressMiddleware } from "@x402/express";
import { x402ResourceServer } from "@x402/core/server";
import { paymentMiddleware as honoMiddleware } from "@x402/hono";
import express from "express";
import { Hono } from "hono";
import { PAYEE } from "./seller.mjs";

export const NETWORK = "eip155:8453";
const BLOCK_S = 2;
const FINAL_DEPTH = 64;

/** The process that this code runs in: its clock is wrong by `offset` seconds. */
export const PROCESS = new AsyncLocalStorage();

/** EIP-3009 authorizations, and the block in which each was used. `now` is the chain's time. */
export class SimulatedChain {
  now = 1_800_000_000;
  #start = this.now - 10_000;
  #used = new Map();
  #pending = new Map();
  #valid = new Map();

  get height() {
    return Math.floor((this.now - this.#start) / BLOCK_S);
  }

  timeOf(block) {
    return this.#start + block * BLOCK_S;
  }

  submit({ nonce, validBefore }) {
    this.#pending.set(nonce, validBefore);
  }

  /** Drops every transaction that is not mined. */
  drop() {
    this.#pending.clear();
  }

  /** Mines every transaction whose authorization is still valid. */
  mine() {
    this.now += BLOCK_S;
    for (const [nonce, validBefore] of this.#pending) {
      this.#valid.set(nonce, validBefore);
      const isValid = this.timeOf(this.height) < validBefore;
      if (isValid && !this.#used.has(nonce)) this.#used.set(nonce, this.height);
    }
    this.#pending.clear();
  }

  /** Lets time pass; pending transactions are mined in the first block, or expire. */
  advance(seconds) {
    this.mine();
    this.now += seconds;
  }

  /** Removes the newest blocks; their transactions are pending again. */
  reorganise(depth) {
    for (const [nonce, block] of this.#used) {
      if (block <= this.height - depth) continue;
      this.#used.delete(nonce);
      this.#pending.set(nonce, this.#valid.get(nonce));
    }
  }

  isUsed(nonce, block = this.height) {
    return (this.#used.get(nonce) ?? Infinity) <= block;
  }
}

export const MOODS = ["honest", "silent", "lagging", "other chain", "garbage", "lying"];
const hex = (number) => `0x${number.toString(16)}`;

/** A node's answer to a JSON-RPC request. */
export function nodeAnswer(chain, mood, { method, params }) {
  if (mood === "silent") throw new TypeError("no node");
  if (mood === "garbage") return "0x";
  const height = Math.max(0, chain.height - (mood === "lagging" ? 500 : 0));
  const blockOf = (tag) => {
    if (tag === "latest") return height;
    return tag === "finalized" ? Math.max(0, height - FINAL_DEPTH) : Number(tag);
  };
  if (method === "eth_chainId") return hex(mood === "other chain" ? 1 : 8453);
  if (method === "eth_blockNumber") return hex(height);
  if (method === "eth_getBlockByNumber") {
    const block = blockOf(params[0]);
    return { number: hex(block), timestamp: hex(chain.timeOf(block)) };
  }
  const nonce = `0x${params[0].data.slice(-64)}`;
  const isUsed = mood !== "lying" && chain.isUsed(nonce, blockOf(params[1]));
  return `0x${(isUsed ? "1" : "0").padStart(64, "0")}`;
}

export function readPayment({ payload }) {
  const { authorization, signature } = payload;
  const { nonce, validBefore } = authorization;
  return { nonce: nonce.toLowerCase(), validBefore: Number(validBefore), authorization, signature };
}

export const SETTLEMENTS = ["at once", "pending", "fails", "fails with a wrong transaction", "throws"];

/** A facilitator in process: `mode` is what its settlements do. */
export class Facilitator {
  mode = "at once";
  #known = new Map();
  #chain;
  #newHash;

  constructor(chain, newHash) {
    this.#chain = chain;
    this.#newHash = newHash;
  }

  /** Forgets the transactions that it sent. */
  restart() {
    this.#known.clear();
  }

  async verify(payload) {
    const { nonce, validBefore } = readPayment(payload);
    const invalid = (invalidReason) => ({ isValid: false, invalidReason });
    if (this.#chain.isUsed(nonce)) return invalid("invalid_exact_evm_nonce_already_used");
    const isLate = validBefore < this.#chain.now + 6;
    return isLate ? invalid("invalid_exact_evm_payload_authorization_valid_before") : { isValid: true };
  }

  async settle(payload) {
    const payment = readPayment(payload);
    const hash = this.#known.get(payment.nonce) ?? this.#newHash();
    this.#known.set(payment.nonce, hash);
    const failure = (errorReason, transaction = hash) => ({
      ...{ success: false, errorReason, transaction, network: NETWORK },
    });
    const isUsed = this.#chain.isUsed(payment.nonce);
    if (this.mode === "fails") return failure("insufficient_funds", "");
    this.#chain.submit(payment);
    if (this.mode === "throws") throw new Error("the facilitator is restarting");
    if (this.mode === "pending") return failure("settlement_pending");
    this.#chain.mine();
    if (this.mode !== "at once") return failure("transaction_failed", `0x${"ee".repeat(32)}`);
    if (isUsed) return failure("invalid_exact_evm_nonce_already_used");
    return { success: true, transaction: hash, network: NETWORK };
  }

  async getSupported() {
    return { kinds: [{ x402Version: 2, scheme: "exact", network: NETWORK }], extensions: [], signers: {} };
  }
}

function routesOf(facilitator) {
  const accepts = { scheme: "exact", network: NETWORK, payTo: PAYEE, price: "$0.005", maxTimeoutSeconds: 60 };
  const server = new x402ResourceServer(facilitator).register(NETWORK, new ExactEvmScheme());
  return [{ "GET /*": { accepts, description: "" } }, server];
}

/** A seller on express, which listens on loopback. */
export async function expressSeller(facilitator) {
  const app = express();
  app.use(expressMiddleware(...routesOf(facilitator)));
  app.get("/{*path}", (request, response) => response.json({ path: request.path }));
  app.use((_error, _request, response, _next) => response.status(500).end());
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, fetch: globalThis.fetch, close };
}

/** A seller on hono, in process. */
export async function honoSeller(facilitator) {
  const app = new Hono();
  app.use(honoMiddleware(...routesOf(facilitator)));
  app.get("/*", (context) => context.json({ path: context.req.path }));
  const fetch = async (request) => {
    const answer = await PROCESS.run(undefined, () => app.fetch(request));
    return Object.defineProperty(answer, "url", { value: request.url });
  };
  return { url: "http://seller.example", fetch, close: () => undefined };
}
