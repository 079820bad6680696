/**
 * The paying tool that the adapters give to a language model.
 *
 * A model chooses URL, method, headers and body, and nothing else: whatever else it sends is
 * ignored, and no argument changes a decision. Refusals come back as data without addresses and
 * without settings that would allow the payment.
 */

import { PaymentRefused, PaymentUnresolved } from "./call.js";
import type { WrapFetch } from "./fetch.js";
import type { Guard } from "./guard.js";
import type { McpLike } from "./mcp.js";
import { PAYMENT_HEADERS } from "./signed.js";
import type { Fetch, PayingClient } from "./transport.js";

const NAME = "paid_request";
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const MAX_TEXT = 20_000; // characters of a body that a model gets
const MAX_BODY = 10 * 2 ** 20; // bytes of a body that are read; the rest is cut
const OTHER_PAYER = /x402|402[_-]?pay|pay[_-]?402/i;
const DESCRIPTION =
  "Send an HTTP request and pay for it if the endpoint requires a payment (x402) that the owner's " +
  "policy allows. Returns status, content type and body. A result with `error` was not paid, or " +
  "has no response yet; repeat the same call only while `retryUntil` lies ahead.";
const DROPPED = new Set([
  ...["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"], // RFC 9110
  ...["proxy-connection", "proxy-authorization", "host", "content-length", "expect"],
  ...["sign-in-with-x", ...PAYMENT_HEADERS.map((name) => name.toLowerCase())],
]);
const PARAMETERS = {
  type: "object",
  properties: {
    url: { type: "string", description: "absolute http or https URL" },
    method: { type: "string", description: `one of ${METHODS.join(", ")}` },
    headers: { type: "object", additionalProperties: { type: "string" } },
    body: { type: "string", description: "request body, as text" },
  },
  required: ["url"],
  additionalProperties: false,
} as const;

/** Another tool of the agent pays without the guard. */
export class AdapterError extends Error {
  override readonly name = "AdapterError";
}

export type ToolResult = Record<string, unknown>;

/** The paying tool, as each framework describes one in its own way. */
export interface PaidTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema. */
  readonly parameters: typeof PARAMETERS;
  /** Sends a request, and returns what a model may read. It never throws. */
  readonly execute: (input: unknown) => Promise<ToolResult>;
}

/** `guard` pays with `wrap`, which is `wrapFetchWithPayment` of `@x402/fetch`. */
export function paidTool<Client extends PayingClient>(
  guard: Guard<Client>,
  wrap: WrapFetch<Client>,
  fetch?: Fetch,
): PaidTool {
  const paying = guard.fetch(wrap, fetch);
  const execute = async (input: unknown): Promise<ToolResult> => {
    const request = readRequest(input);
    if (typeof request === "string") return { error: "invalid-request", message: request };
    try {
      const answer = await paying(request.url, request.init);
      const text = await readText(answer);
      return describe(answer, text, guard.payment(answer)?.handle);
    } catch (error) {
      return describeError(error, guard.payment(error)?.handle);
    }
  };
  return { name: NAME, description: DESCRIPTION, parameters: PARAMETERS, execute };
}

/**
 * Vercel AI SDK: `tools` with the paying tool, for `generateText` and agents. `ai` is the module.
 * Throws AdapterError if another tool pays by x402 itself.
 */
export function vercelTools<Tools extends object>(
  ai: { readonly tool: (options: never) => unknown; readonly jsonSchema: (schema: never) => unknown },
  paid: PaidTool,
  tools: Tools,
): Tools & { [NAME]: never } {
  for (const name of Object.keys(tools)) refuseOtherPayer(name);
  const { description, parameters, execute } = paid;
  const inputSchema = ai.jsonSchema(parameters as never);
  const tool = ai.tool({ description, inputSchema, execute } as never);
  return { ...tools, [NAME]: tool as never };
}

/**
 * OpenAI Agents SDK: `tools` with the paying tool. `agents` is the module `@openai/agents`.
 * Throws AdapterError if another tool pays by x402 itself.
 */
export function openAiAgentsTools<Tool>(
  agents: { readonly tool: (options: never) => Tool },
  paid: PaidTool,
  tools: readonly Tool[],
): Tool[] {
  for (const tool of tools) refuseOtherPayer(nameOf(tool));
  const { name, description, parameters, execute } = paid;
  // `strict: false`: the headers are an open map, which strict schemas do not allow.
  const tool = agents.tool({ name, description, parameters, strict: false, execute } as never);
  return [...tools, tool];
}

/**
 * AgentKit: `providers` with an action that pays, in place of `x402ActionProvider`. `kit` is the
 * module `@coinbase/agentkit`, `z` is zod. Throws AdapterError if `x402ActionProvider` is there.
 */
export function agentKitProviders<Provider>(
  kit: { readonly customActionProvider: (options: never) => Provider },
  z: ZodLike,
  paid: PaidTool,
  providers: readonly Provider[],
): Provider[] {
  for (const provider of providers) refuseOtherPayer(nameOf(provider));
  const text = z.string();
  const schema = z.object({
    url: text,
    method: text.optional(),
    headers: z.record(text as never, text as never).optional(),
    body: text.optional(),
  } as never);
  const { name, description, execute } = paid;
  // AgentKit passes the wallet only to functions with two parameters.
  const invoke = async (input: unknown): Promise<string> => JSON.stringify(await execute(input));
  return [...providers, kit.customActionProvider({ name, description, schema, invoke } as never)];
}

/**
 * Cloudflare Agents: an MCP client whose `callTool` makes allowed payments, in place of
 * `withX402Client`. The agent's own calls (`getAITools`) use it too. `server` is the URL under which
 * the bundle lists the server, or null. Throws AdapterError for a client that pays by x402 itself.
 */
export function cloudflareMcpClient<Client extends PayingClient, Mcp extends McpLike>(
  guard: Guard<Client>,
  client: Mcp,
  server: string | null,
): Mcp {
  if (Object.getOwnPropertyDescriptor(client, "callTool")?.writable === false) {
    throw new AdapterError("The MCP client pays by x402 already. Remove withX402Client.");
  }
  const callTool = client.callTool.bind(client);
  const value = guard.mcp({ callTool }, server);
  // Not writable and not configurable: withX402Client cannot replace it later.
  return Object.defineProperty(client, "callTool", { value });
}

interface ZodText {
  optional(): unknown;
}

interface ZodLike {
  string(): ZodText;
  record(key: never, value: never): { optional(): unknown };
  object(shape: never): unknown;
}

function refuseOtherPayer(name: string): void {
  if (OTHER_PAYER.test(name)) {
    throw new AdapterError(`The tool ${name} pays by x402 without the guard. Remove it.`);
  }
  if (name === NAME) throw new AdapterError(`The tool ${NAME} is registered already.`);
}

function nameOf(tool: unknown): string {
  const name = (tool as { readonly name?: unknown } | null)?.name;
  return typeof name === "string" ? name : "";
}

/** Reads the four arguments of a request; returns a text if they are not valid. */
function readRequest(input: unknown): { url: string; init: RequestInit } | string {
  const { url, method = "GET", headers = {}, body } = (input ?? {}) as Record<string, unknown>;
  if (typeof url !== "string" || !/^https?:\/\//i.test(url)) {
    return "Use an absolute http or https URL.";
  }
  const verb = typeof method === "string" ? method.toUpperCase() : "";
  if (!METHODS.includes(verb)) return `Use one of ${METHODS.join(", ")}.`;
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) {
    return "Headers are an object of texts.";
  }
  const kept: [string, string][] = [];
  const named = String(Object.entries(headers).find(([name]) => isConnection(name))?.[1] ?? "");
  const ofConnection = new Set(named.split(",").map((name) => name.trim().toLowerCase()));
  for (const [name, value] of Object.entries(headers)) {
    if (typeof value !== "string") return "Headers are an object of texts.";
    const lower = name.trim().toLowerCase();
    if (!DROPPED.has(lower) && !ofConnection.has(lower)) kept.push([name, value]);
  }
  if (body !== undefined && body !== null && typeof body !== "string") return "A body is a text.";
  const content = typeof body === "string" ? { body } : {};
  return { url, init: { method: verb, headers: kept, ...content } };
}

function isConnection(name: string): boolean {
  return name.trim().toLowerCase() === "connection";
}

/** Reads a body, and returns its start; a body above `MAX_BODY` is cancelled. */
async function readText(answer: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for await (const chunk of answer.body ?? []) {
    size += chunk.length;
    if (size > MAX_BODY) break;
    if (text.length <= MAX_TEXT) text += decoder.decode(chunk, { stream: true });
  }
  return text.length > MAX_TEXT ? text : text + decoder.decode();
}

function describe(answer: Response, text: string, handle: string | undefined): ToolResult {
  return {
    status: answer.status,
    contentType: answer.headers.get("content-type"),
    body: text.slice(0, MAX_TEXT),
    ...(text.length > MAX_TEXT ? { truncated: true } : {}),
    ...(handle === undefined ? {} : { payment: handle }),
  };
}

function describeError(error: unknown, handle: string | undefined): ToolResult {
  if (error instanceof PaymentUnresolved) {
    const { code, state, retryUntil } = error;
    return { error: "payment-refused", code, handle: error.handle, state, retryUntil };
  }
  if (error instanceof PaymentRefused) return { error: "payment-refused", code: error.code };
  const kind = error instanceof Error ? error.name : "Error";
  return { error: "request-failed", kind, ...(handle === undefined ? {} : { payment: handle }) };
}
