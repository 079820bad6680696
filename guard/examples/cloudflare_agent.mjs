// An agent of Cloudflare Agents that buys with a guard; its journal is in the agent's own storage.
// npm install ./tollgauge-guard-0.1.0.tgz @x402/core @x402/fetch @x402/evm viem agents
// wrangler.jsonc: "compatibility_flags": ["nodejs_compat"], "compatibility_date" 2025-09-15 or later,
// a binding BUYER of the class Buyer with SQLite ("new_sqlite_classes": ["Buyer"]), and the variables.
import { durableStore, guarded, paidTool } from "@tollgauge/guard";
import { x402Client } from "@x402/core/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { Agent, getAgentByName } from "agents";
import { privateKeyToAccount } from "viem/accounts";

export class Buyer extends Agent {
  constructor(state, env) {
    super(state, env);
    const client = new x402Client();
    registerExactEvmScheme(client, { signer: privateKeyToAccount(env.PRIVATE_KEY) });
    this.guard = guarded(client, {
      bundle: env.TOLLGAUGE_GUARD_BUNDLE,
      key: env.TOLLGAUGE_GUARD_KEY,
      journal: durableStore(state.storage),
      policy: { maxCall: 50_000n, maxDay: 1_000_000n, unknown: "refuse" },
    });
    this.paid = paidTool(this.guard, wrapFetchWithPayment);
  }

  /** A request of JSON `{ url, method, headers, body }`, as a language model gives them to the tool. */
  async onRequest(request) {
    const result = await this.paid.execute(await request.json());
    const payments = this.guard.journal.payments().map(({ resource, amount, state }) => {
      return { resource, amount, state };
    });
    return Response.json({ result, payments });
  }
}

export default {
  fetch: async (request, env) => (await getAgentByName(env.BUYER, "buyer")).fetch(request),
};
