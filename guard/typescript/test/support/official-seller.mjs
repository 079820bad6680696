// A seller on the official server SDK: `settle` answers in place of the facilitator's chain.
import { once } from "node:events";
import { createServer } from "node:http";
import { x402HTTPResourceServer, x402ResourceServer } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { PAYEE } from "./seller.mjs";

const NETWORK = "eip155:8453";

/**
 * A seller of GET /paid at $0.001. `settle` gets each payment that the seller settles, and returns
 * the facilitator's answer; `verify` may refuse one.
 */
export async function officialSeller({ settle, verify = () => ({ isValid: true }) }) {
  const facilitator = {
    verify: async (payload) => verify(payload),
    settle: async (payload) => settle(payload),
    getSupported: async () => ({
      kinds: [{ x402Version: 2, scheme: "exact", network: NETWORK }],
      extensions: [],
      signers: {},
    }),
  };
  const resources = new x402ResourceServer(facilitator).register(NETWORK, new ExactEvmScheme());
  const accepts = { scheme: "exact", network: NETWORK, payTo: PAYEE, price: "$0.001" };
  const shop = new x402HTTPResourceServer(resources, { "GET /paid": { accepts, description: "" } });
  await shop.initialize();
  const state = { url: "", handled: 0 };
  const server = createServer(async (request, response) => {
    const adapter = adapterOf(request, state.url);
    const context = { adapter, path: adapter.getPath(), method: request.method };
    const result = await shop.processHTTPRequest(context);
    if (result.type === "payment-error") return write(response, result.response);
    state.handled += 1;
    const { paymentPayload, paymentRequirements, declaredExtensions } = result;
    const settled = await shop.processSettlement(
      paymentPayload,
      paymentRequirements,
      declaredExtensions,
      { request: context },
    );
    if (!settled.success) return write(response, settled.response);
    return write(response, { status: 200, headers: settled.headers, body: "delivered" });
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

function adapterOf(request, origin) {
  const { pathname, href } = new URL(request.url, origin);
  return {
    getHeader: (name) => request.headers[name.toLowerCase()],
    getMethod: () => request.method,
    getPath: () => pathname,
    getUrl: () => href,
    getAcceptHeader: () => request.headers.accept ?? "",
    getUserAgent: () => request.headers["user-agent"] ?? "",
  };
}

function write(response, { status, headers, body }) {
  response.writeHead(status, headers);
  response.end(typeof body === "string" ? body : JSON.stringify(body ?? {}));
}
