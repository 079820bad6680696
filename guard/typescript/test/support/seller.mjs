// A seller on loopback. Each path has a handler; a payment is taken as it comes and remembered.
import { once } from "node:events";
import { createServer } from "node:http";

export const USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
export const PAYEE = "0x209693bc6afc0c5328ba36faf03c514ef312287c";
export const THIEF = "0x1c47e9c085c2b7458f5b6c16cce21bb1a1a1d0bb";

export function base64(value) {
  return Buffer.from(JSON.stringify(value)).toString("base64");
}

export function offer(changes = {}) {
  return {
    scheme: "exact",
    network: "eip155:8453",
    amount: "1000",
    asset: USDC,
    payTo: PAYEE,
    maxTimeoutSeconds: 60,
    extra: { name: "USD Coin", version: "2" },
    ...changes,
  };
}

/** A 402 of version 2 with these offers. */
export function asks(response, url, ...offers) {
  const required = {
    x402Version: 2,
    error: "payment required",
    resource: { url },
    accepts: offers,
  };
  response.writeHead(402, { "payment-required": base64(required) }).end("{}");
}

/** The payment of a request, or null. */
export function paymentOf(request) {
  const value = request.headers["payment-signature"] ?? request.headers["x-payment"];
  return value === undefined ? null : JSON.parse(Buffer.from(value, "base64").toString());
}

export function delivers(response, body = "delivered") {
  const receipt = { success: true, transaction: `0x${"ab".repeat(32)}`, network: "eip155:8453" };
  response.writeHead(200, { "payment-response": base64(receipt) }).end(body);
}

/** A seller at `url`; `paths` maps a path to (request, response, payment, seller) => void. */
export async function seller(paths) {
  const state = { url: "", payments: [], requests: [] };
  const server = createServer((request, response) => {
    const { pathname, search } = new URL(request.url, "http://seller");
    const payment = paymentOf(request);
    const seen = {
      method: request.method,
      path: pathname,
      query: search,
      headers: request.headers,
      body: "",
    };
    state.requests.push(seen);
    if (payment !== null) state.payments.push(payment);
    const handler = paths[pathname] ?? ((_, answer) => answer.writeHead(404).end());
    request.on("data", (chunk) => (seen.body += chunk));
    request.on("end", () => handler(request, response, payment, state));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  state.url = `http://127.0.0.1:${server.address().port}`;
  state.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return state;
}

/** A seller of one thing at one price. */
export function sells(changes = {}) {
  return (request, response, payment, { url }) => {
    if (payment === null) asks(response, url + request.url, offer(changes));
    else delivers(response);
  };
}
