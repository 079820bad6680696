// The chain of the fault schedules on anvil, with a token at USDC's address and moved time.
import { Worker, MessageChannel, receiveMessageOnPort } from "node:worker_threads";
import { encodeAbiParameters, parseAbiParameters } from "viem";
import { USDC } from "./seller.mjs";
import { SimulatedChain } from "./simulated.mjs";

const BLOCK_S = 2;
const MAX_BLOCKS = 80;
/** `transferWithAuthorization(…, bytes)`, and `authorizationState(address,bytes32)`. */
const TRANSFER = "0xcf092995";
const STATE = "0xe94a0102";
const KINDS = parseAbiParameters("address, address, uint256, uint256, uint256, bytes32, bytes");
const ASK = `
const { parentPort, workerData: { url, port, done } } = require("node:worker_threads");
port.on("message", async (request) => {
  const options = { method: "POST", headers: { "content-type": "application/json" } };
  const answer = await fetch(url, { ...options, body: JSON.stringify(request) }).then(
    (response) => response.json(),
    (error) => ({ error: String(error) }),
  );
  port.postMessage(answer);
  Atomics.store(done, 0, 1);
  Atomics.notify(done, 0);
});`;

/** Settlements are real transactions; blocks are mined only when the schedule says so. */
export class AnvilChain extends SimulatedChain {
  #done = new Int32Array(new SharedArrayBuffer(4));
  #port;
  #payers = new Map();
  #sender;

  constructor(url) {
    super();
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const workerData = { url, port: port2, done: this.#done };
    new Worker(ASK, { eval: true, workerData, transferList: [port2] }).unref();
    port1.unref();
    this.#rpc("evm_setAutomine", false);
    [, , this.#sender] = this.#rpc("eth_accounts");
    this.now = Number(this.#rpc("eth_getBlockByNumber", "latest", false).timestamp);
  }

  get height() {
    return Number(this.#rpc("eth_blockNumber"));
  }

  timeOf(block) {
    const name = `0x${Math.max(0, block).toString(16)}`;
    return Number(this.#rpc("eth_getBlockByNumber", name, false).timestamp);
  }

  submit({ nonce, authorization, signature }) {
    const { from, to, value, validAfter, validBefore } = authorization;
    this.#payers.set(nonce, from);
    const times = [BigInt(validAfter), BigInt(validBefore)];
    const values = [from, to, BigInt(value), ...times, authorization.nonce, signature];
    const data = TRANSFER + encodeAbiParameters(KINDS, values).slice(2);
    this.#rpc("eth_sendTransaction", { from: this.#sender, to: USDC, data, gas: "0x30d40" });
  }

  drop() {
    this.#rpc("anvil_dropAllTransactions");
  }

  mine() {
    this.now += BLOCK_S;
    this.#rpc("evm_setNextBlockTimestamp", this.now);
    this.#rpc("evm_mine");
  }

  advance(seconds) {
    this.mine();
    const blocks = Math.min(Math.floor(seconds / BLOCK_S), MAX_BLOCKS);
    this.now += seconds - blocks * BLOCK_S;
    if (blocks === 0) return;
    this.#rpc("evm_setNextBlockTimestamp", this.now + BLOCK_S);
    this.#rpc("anvil_mine", blocks, BLOCK_S);
    this.now += blocks * BLOCK_S;
  }

  /** Not on anvil: its rollback also forgets the transactions. */
  reorganise() {}

  isUsed(nonce, block = this.height) {
    const payer = this.#payers.get(nonce);
    if (payer === undefined) return false;
    const data = `${STATE}${payer.slice(2).toLowerCase().padStart(64, "0")}${nonce.slice(2)}`;
    const at = `0x${Math.max(0, Math.min(block, this.height)).toString(16)}`;
    return BigInt(this.#rpc("eth_call", { to: USDC, data }, at)) === 1n;
  }

  /** The schedules read the chain synchronously. */
  #rpc(method, ...params) {
    Atomics.store(this.#done, 0, 0);
    this.#port.postMessage({ jsonrpc: "2.0", id: 1, method, params });
    Atomics.wait(this.#done, 0, 0);
    const { message } = receiveMessageOnPort(this.#port);
    if (message.error !== undefined) throw new Error(`${method}: ${JSON.stringify(message)}`);
    return message.result;
  }
}
