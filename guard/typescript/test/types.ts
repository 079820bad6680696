// The types of the official clients fit those of the guard. Compiled, never run.
import { type Guard, guarded, type Payment, type Question } from "@tollgauge/guard";
import { wrapAxiosWithPayment } from "@x402/axios";
import type { x402Client as AxiosClient } from "@x402/axios";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import axios, { type AxiosInstance } from "axios";

const key = { kty: "OKP", crv: "Ed25519", x: "" } as const;
const guard: Guard<x402Client> = guarded(new x402Client(), {
  bundle: "https://trust.example.com/trust/bundle",
  key,
  policy: { maxDay: 1_000_000n },
  ask: async (question: Question) => question.terms.exposure < 20_000n,
});

export const paid: (url: string) => Promise<Response> = guard.fetch(wrapFetchWithPayment);
export const withHooks = guard.fetch((fetch, client) =>
  wrapFetchWithPayment(fetch, new x402HTTPClient(client)),
);
export const api: AxiosInstance = guard.axios(
  (instance, client) => wrapAxiosWithPayment(instance, client as unknown as AxiosClient),
  axios.create(),
);
export const open: Payment[] = guard.unresolved();

export const tool: Client["callTool"] = guard.mcp(
  new Client({ name: "agent", version: "1" }),
  "https://tools.example.com/mcp",
);
