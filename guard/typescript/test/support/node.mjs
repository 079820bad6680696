// A JSON-RPC node on loopback. It has one block per second, and knows which nonces were used since
// which block; `say` replaces its answers to a method.
import { once } from "node:events";
import { createServer } from "node:http";

const BLOCK_MAX = 1_000_000;
const FINALITY = 64;

/** A node whose newest block is BLOCK_MAX, at the time `now()` in unix seconds. */
export async function chainNode({ now = () => Date.now() / 1000 } = {}) {
  const node = { url: "", asked: [], used: new Map(), say: {} };
  const numberOf = (tag) => {
    if (tag === "latest") return BLOCK_MAX;
    return tag === "finalized" ? BLOCK_MAX - FINALITY : Number(tag);
  };
  const hex = (number) => `0x${Math.floor(number).toString(16)}`;
  const results = {
    eth_chainId: () => hex(8453),
    eth_blockNumber: () => hex(BLOCK_MAX),
    eth_getBlockByNumber: ([tag]) => ({
      number: hex(numberOf(tag)),
      timestamp: hex(now() - (BLOCK_MAX - numberOf(tag))),
    }),
    eth_call: ([{ data }, tag]) => {
      const since = node.used.get(`0x${data.slice(-64)}`) ?? Infinity;
      return `0x${(since <= numberOf(tag) ? "1" : "0").padStart(64, "0")}`;
    },
  };
  const server = createServer(async (request, response) => {
    const { id, method, params } = JSON.parse(Buffer.concat(await request.toArray()).toString());
    node.asked.push(method);
    const said = (node.say[method] ?? results[method])(params);
    if (said !== undefined) response.end(JSON.stringify({ jsonrpc: "2.0", id, ...answerOf(said) }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  node.url = `http://127.0.0.1:${server.address().port}`;
  node.take = (nonce, blocksAgo = 0) => node.used.set(nonce, BLOCK_MAX - blocksAgo);
  node.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return node;
}

function answerOf(said) {
  if (!(said instanceof Error)) return { result: said };
  return { error: { code: -32_000, message: said.message } };
}
