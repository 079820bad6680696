/**
 * The guard around an MCP client: paid tools of x402 version 2 (its MCP transport); and the approval
 * of payments by the user of an MCP client.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { describe } from "./approval.js";
import type { SentPayment } from "./call.js";
import { decoded, members, parsed } from "./json.js";
import type { Question } from "./options.js";
import { requestKey } from "./purchase-key.js";
import { parseResource } from "./resource.js";
import type { PayingClient, TransportGuard } from "./transport.js";

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
const CLOUDFLARE_402 = "x402/error";

/**
 * `callTool` of the client, which makes allowed payments. `server` is the server's URL, under which the
 * bundle may list its tools; null for a server without a URL.
 */
export function guardMcp<Client extends PayingClient, Mcp extends McpLike>(
  guard: TransportGuard<Client>,
  client: Mcp,
  server: string | null,
): Mcp["callTool"] {
  return (params: ToolCall, ...rest: unknown[]) =>
    guard.run(async (call) => {
      const free = await client.callTool(params, ...rest);
      const asked = paymentRequired(free);
      if (asked === null) return free;
      const { required, isText } = asked;
      const named = `mcp://tool/${params.name}`;
      call.alias = isText ? `x402://${params.name}` : named;
      call.tool = params.name;
      call.url = server ?? named;
      call.key = toolKey(call.url, params);
      const signed = encoded(await guard.client.createPaymentPayload(required));
      const sent = guard.admit((name) => (name === "payment-signature" ? signed : null));
      if (sent === null) throw new TypeError("The x402 client made no payment.");
      const payment = isText ? sent.value : decoded(sent.value);
      const _meta = { ...params._meta, [PAYMENT]: payment };
      return pay(guard, sent, () => client.callTool({ ...params, _meta }, ...rest));
    });
}

async function pay<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  callTool: () => Promise<unknown>,
): Promise<unknown> {
  let answer: unknown;
  try {
    answer = await callTool();
  } catch (error) {
    guard.name(error, sent);
    guard.conclude(sent, "no-answer");
    throw error;
  }
  guard.name(answer, sent);
  const receipt = members(members(answer)["_meta"])[RECEIPT];
  const header = (name: string): string | null =>
    name === "payment-response" && receipt !== undefined ? encoded(receipt) : null;
  const isError = members(answer)["isError"] === true;
  if (!isError) guard.conclude(sent, "answer", 200, header);
  else guard.conclude(sent, "error-answer", paymentRequired(answer) === null ? 500 : 402, header);
  return answer;
}

/** The key of a tool call, as the Python guard computes it. */
function toolKey(url: string, { name, arguments: given = {} }: ToolCall): string {
  return requestKey("tools/call", url, () => null, Buffer.from(sortedJson([name, given])));
}

/** JSON with sorted members, in ASCII and with spaces, as `json.dumps(…, sort_keys=True)` writes it. */
function sortedJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sortedJson).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const names = Object.keys(value).filter((name) => members(value)[name] !== undefined);
    const pairs = names.sort().map((name) => `${ascii(name)}: ${sortedJson(members(value)[name])}`);
    return `{${pairs.join(", ")}}`;
  }
  return typeof value === "string" ? ascii(value) : (JSON.stringify(value) ?? "null");
}

function ascii(text: string): string {
  const escaped = (one: string): string => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\x7f-\uffff]/g, escaped);
}

/** The 402 of a tool, and whether its server reads the payment as a base64 text. */
interface ToolOffers {
  readonly required: object;
  readonly isText: boolean;
}

/**
 * The 402 in an answer: in `_meta` (servers of Cloudflare Agents), in its structured content, or as
 * JSON in its first text.
 */
function paymentRequired(answer: unknown): ToolOffers | null {
  const { isError, structuredContent, content, _meta } = members(answer);
  if (isError !== true) return null;
  const [first] = Array.isArray(content) ? (content as unknown[]) : [];
  const cloudflare = members(_meta)[CLOUDFLARE_402];
  const texts = [cloudflare, structuredContent, parsed(String(members(first)["text"]))];
  const required = texts.find((value) => {
    const { x402Version, accepts } = members(value);
    return x402Version === 2 && Array.isArray(accepts);
  });
  if (required === undefined) return null;
  return { required: required as object, isText: required === cloudflare };
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64");
}

/** The part of an MCP `Server` that asks its client's user; `any` to fit every version. */
export interface ElicitingServer {
  getClientCapabilities(): { readonly elicitation?: unknown } | undefined;
  elicitInput(params: any): Promise<{ readonly action: string; readonly content?: unknown }>;
}

/**
 * Asks the user of an MCP client, for a guard inside a server's tools: `ask: elicitation.ask`, and
 * `elicitation.during(server, work)` in each tool that pays. A client that did not declare
 * elicitation cannot answer, so the payment is refused.
 */
export class Elicitation {
  readonly #servers = new AsyncLocalStorage<ElicitingServer>();

  /** Runs `work`, whose questions go to the client of a server (of an `McpServer`: its `server`). */
  during<T>(server: ElicitingServer, work: () => T): T {
    return this.#servers.run(server, work);
  }

  /** Whether the user allowed a payment. */
  readonly ask = async (question: Question): Promise<boolean> => {
    const server = this.#servers.getStore();
    if (server?.getClientCapabilities()?.elicitation === undefined) return false;
    const { action, content } = await server.elicitInput({
      message: describe(question, parseResource(question.url)?.host ?? ""),
      requestedSchema: {
        type: "object",
        properties: { allow: { type: "boolean", title: "Allow the payment" } },
        required: ["allow"],
      },
    });
    return action === "accept" && members(content)["allow"] === true;
  };
}
