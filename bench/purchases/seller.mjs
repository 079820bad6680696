// A seller on the official TypeScript middleware: `node seller.mjs express|hono FACILITATOR_URL`.
// It prints its port. Every path costs $0.001.
import { HTTPFacilitatorClient, x402ResourceServer } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";

const [framework, url] = process.argv.slice(2);
const NETWORK = "eip155:8453";
const payTo = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C";
const accepts = { scheme: "exact", network: NETWORK, payTo, price: "$0.001", maxTimeoutSeconds: 60 };
const routes = { "/*": { accepts, description: "" } };
const facilitator = new HTTPFacilitatorClient({ url });
const resources = new x402ResourceServer(facilitator).register(NETWORK, new ExactEvmScheme());

if (framework === "express") {
  const { default: express } = await import("express");
  const { paymentMiddleware } = await import("@x402/express");
  const app = express();
  app.use(paymentMiddleware(routes, resources));
  app.use((request, response) => response.json({ delivered: request.path.slice(1) }));
  const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
} else {
  const { serve } = await import("@hono/node-server");
  const { Hono } = await import("hono");
  const { paymentMiddleware } = await import("@x402/hono");
  const app = new Hono();
  app.use(paymentMiddleware(routes, resources));
  app.all("*", (context) => context.json({ delivered: context.req.path.slice(1) }));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => console.log(port));
}
