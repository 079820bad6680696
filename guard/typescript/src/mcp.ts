/** The guard around an MCP client: paid tools of x402 version 2 (its MCP transport). */

import type { SentPayment } from "./call.js";
import { decoded, members, parsed } from "./json.js";
import { digest } from "./request.js";
import type { PayingClient, TransportGuard } from "./transport.js";

/** The part of an x402 client that signs. */
export interface SigningClient extends PayingClient {
  createPaymentPayload(paymentRequired: any): Promise<unknown>;
}

/** The part of an MCP `Client` that the guard uses; its types are `any` to fit every version. */
export interface McpLike {
  callTool(params: any, ...rest: any[]): Promise<any>;
}

interface ToolCall {
  readonly name: string;
  readonly arguments?: Record<string, unknown>;
  readonly _meta?: Record<string, unknown>;
}

const PAYMENT = "x402/payment";
const RECEIPT = "x402/payment-response";

/**
 * `callTool` of the client, which pays what the guard allows. `server` is the URL of the server,
 * by which the bundle knows it; null for one that is no web server.
 */
export function guardMcp<Client extends SigningClient, Mcp extends McpLike>(
  guard: TransportGuard<Client>,
  client: Mcp,
  server: string | null,
): Mcp["callTool"] {
  return (params: ToolCall, ...rest: unknown[]) =>
    guard.run(async (call) => {
      const free = await client.callTool(params, ...rest);
      const required = paymentRequired(free);
      if (required === null) return free;
      call.alias = `mcp://tool/${params.name}`;
      call.url = server ?? call.alias;
      const body = Buffer.from(JSON.stringify([params.name, params.arguments ?? {}]));
      call.request = digest("tools/call", call.url, body);
      call.send = (sent) => pay(guard, sent, client, params, rest);
      const signed = encoded(await guard.client.createPaymentPayload(required));
      const sent = guard.admit((name) => (name === "payment-signature" ? signed : null));
      if (sent === null) throw new TypeError("The x402 client made no payment.");
      return call.send(sent);
    });
}

async function pay<Client extends SigningClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  client: McpLike,
  params: ToolCall,
  rest: unknown[],
): Promise<unknown> {
  const payment = { [PAYMENT]: decoded(sent.value) };
  let answer: unknown;
  try {
    answer = await client.callTool({ ...params, _meta: { ...params._meta, ...payment } }, ...rest);
  } catch (error) {
    guard.unanswered(sent);
    throw error;
  }
  const receipt = members(members(answer)["_meta"])[RECEIPT];
  guard.answered(sent, statusOf(answer), (name) =>
    name === "payment-response" && receipt !== undefined ? encoded(receipt) : null,
  );
  return answer;
}

/** The HTTP status that means what the answer of a tool means. */
function statusOf(answer: unknown): number {
  if (paymentRequired(answer) !== null) return 402;
  return members(answer)["isError"] === true ? 500 : 200;
}

/** What an answer asks to be paid: in its structured content, or as JSON in its first text. */
function paymentRequired(answer: unknown): object | null {
  const { isError, structuredContent, content } = members(answer);
  if (isError !== true) return null;
  const [first] = Array.isArray(content) ? (content as unknown[]) : [];
  const asked = [structuredContent, parsed(String(members(first)["text"]))].find((value) => {
    const { x402Version, accepts } = members(value);
    return x402Version === 2 && Array.isArray(accepts);
  });
  return (asked as object | undefined) ?? null;
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64");
}
