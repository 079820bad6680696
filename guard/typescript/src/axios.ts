/** The guard around axios: between the official wrapper and the instance. */

import { finished, PassThrough, pipeline, Readable } from "node:stream";
import type { SentPayment } from "./call.js";
import { isGoodStatus } from "./payment-state.js";
import { requestKey } from "./purchase-key.js";
import {
  CREDENTIALS,
  HOPS_MAX,
  isConditional,
  isSameUrl,
  redirectObstacle,
} from "./request.js";
import { PAYMENT_HEADERS } from "./signed.js";
import { eventOf, type Header, type PayingClient, type TransportGuard } from "./transport.js";
import { type BodyEnd, watchStream } from "./watch.js";

/**
 * The part of an `AxiosInstance` that the guard uses. Its parameters are `any`, so that the types
 * of every version of axios fit.
 */
export interface AxiosLike {
  readonly interceptors: {
    readonly request: { use(ok: any): number };
    readonly response: { use(ok: any, failed: any): number };
  };
  request(config: any): Promise<AxiosAnswer>;
  getUri(config: any): string;
  create(): AxiosLike;
  readonly defaults: { readonly transformResponse?: unknown };
}

/** The part of an instance that the official wrapper gets. */
interface Seam extends Pick<AxiosLike, "request"> {
  readonly interceptors: Pick<AxiosLike["interceptors"], "response">;
}

/** `wrapAxiosWithPayment` of `@x402/axios`. */
export type WrapAxios<Client, Instance> = (instance: Instance, client: Client) => unknown;

/** `beforeRedirect` of axios: `options` are those of the next request. */
type BeforeRedirect = (options: RedirectOptions, ...rest: unknown[]) => void;

interface RedirectOptions {
  readonly href?: unknown;
  readonly headers?: Record<string, unknown>;
}

interface AxiosConfig {
  beforeRedirect?: BeforeRedirect;
  maxRedirects?: number;
  readonly url?: string;
  readonly method?: string;
  readonly headers?: unknown;
  readonly data?: unknown;
  readonly auth?: unknown;
  readonly transformResponse?: unknown;
}

interface AxiosAnswer {
  data?: unknown;
  readonly status: number;
  readonly headers: unknown;
  readonly request?: unknown;
}

interface AxiosFailure {
  readonly config?: AxiosConfig;
  readonly response?: AxiosAnswer;
}

export function guardAxios<Client extends PayingClient, Instance extends AxiosLike>(
  guard: TransportGuard<Client>,
  wrap: WrapAxios<Client, Instance>,
  instance: Instance,
): Instance {
  // An instance without interceptors: none may change a payment after the last look.
  const bare = instance.create();
  // The request that got the 402 contains them already, and deleted defaults stay deleted.
  Object.assign(bare.defaults, { headers: {}, params: undefined, auth: undefined });
  // All that the wrapper gets of the instance: whatever else it would use fails, and pays nothing.
  const seam: Seam = {
    interceptors: {
      response: {
        use: (ok: unknown, failed: (failure: AxiosFailure) => unknown) =>
          instance.interceptors.response.use(ok, (failure: AxiosFailure) =>
            guard.run(async () => {
              note(guard, failure, instance);
              return (await askSignedIn(guard, failure, bare)) ?? failed(failure);
            }),
          ),
      },
    },
    request: async (config: AxiosConfig) => {
      const headers = lowerCased(config.headers);
      const sent = guard.admit((name) => headers.get(name) ?? null);
      return sent === null ? instance.request(config) : pay(guard, sent, config, bare);
    },
  };
  instance.interceptors.request.use(watchRedirects);
  wrap(seam as unknown as Instance, guard.client);
  return instance;
}

interface Redirects {
  /** The program's own `beforeRedirect`. */
  readonly own: BeforeRedirect | undefined;
  /** The URLs that the request was redirected to. */
  readonly urls: string[];
}

/** By the `beforeRedirect` of a request. */
const TARGETS = new WeakMap<object, Redirects>();

/** Notes the redirects of a request, and keeps its credentials from other origins. */
function watchRedirects(config: AxiosConfig): AxiosConfig {
  const given = config.beforeRedirect;
  const { own } = (given && TARGETS.get(given)) ?? { own: given };
  const urls: string[] = [];
  config.beforeRedirect = (options, ...rest) => {
    const [, details] = rest as [unknown, { url?: unknown } | undefined];
    dropHeaders(options, String(details?.url));
    urls.push(String(options.href));
    own?.(options, ...rest);
  };
  config.maxRedirects = Math.min(config.maxRedirects ?? HOPS_MAX, HOPS_MAX);
  TARGETS.set(config.beforeRedirect, { own, urls });
  return config;
}

/** Drops the payment of a redirected request, and its credentials for another origin. */
function dropHeaders({ href, headers = {} }: RedirectOptions, from: string): void {
  const isSame = URL.canParse(from) && new URL(String(href)).origin === new URL(from).origin;
  const dropped: readonly string[] = isSame ? PAYMENT_HEADERS : CREDENTIALS;
  for (const name of Object.keys(headers)) {
    if (dropped.includes(name.toLowerCase())) delete headers[name];
  }
}

/** Records where a 402 came from. */
function note<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  { config, response }: AxiosFailure,
  instance: AxiosLike,
): void {
  const { call } = guard;
  if (call === null || response?.status !== 402 || config === undefined) return;
  const asked = instance.getUri(config);
  const answered = config.maxRedirects === 0 ? asked : landedAt(response, config);
  const targets = config.beforeRedirect && TARGETS.get(config.beforeRedirect)?.urls;
  const urls = [asked, ...(targets ?? []).map((url) => withoutAuth(url, config))];
  const { method = "get", data } = config;
  call.url = answered;
  call.hops = urls.slice(0, -1);
  const body = bytesOf(data);
  const headers = lowerCased(config.headers);
  call.key = requestKey(method, asked, (name) => headers.get(name) ?? null, body ?? new Uint8Array());
  if (body === null) call.obstacle = "The body cannot be sent twice: send text, bytes or JSON.";
  else if (answered === null || !isSameUrl(urls.at(-1) ?? asked, answered)) {
    call.obstacle =
      "axios does not state which URLs redirected: use its http adapter, or maxRedirects: 0.";
  } else call.obstacle = redirectObstacle(method, asked, answered);
}

/** The URL of an answer after redirects, which only the http adapter keeps, or null. */
function landedAt(response: AxiosAnswer, config: AxiosConfig): string | null {
  const { res } = (response.request ?? {}) as { res?: { responseUrl?: unknown } };
  return typeof res?.responseUrl === "string" ? withoutAuth(res.responseUrl, config) : null;
}

/** A URL without the option `auth`, which the http adapter writes into it. */
function withoutAuth(text: string, { auth }: AxiosConfig): string {
  const url = new URL(text);
  if (auth !== undefined) Object.assign(url, { username: "", password: "" });
  return url.href;
}

/**
 * Sends a payment to the URL of the decision. A redirect is followed without the payment, and the
 * answer there is the payment's answer.
 */
async function pay<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  config: AxiosConfig,
  bare: AxiosLike,
): Promise<AxiosAnswer> {
  const { call } = sent;
  const { paid, kept } = keepBody(paidConfig(sent, config, bare), guard.isAnswer !== null, bare);
  try {
    const answer = await bare.request(paid);
    guard.name(answer, sent);
    close(guard, sent, answer, config, kept.body);
    call.answer = () => answer;
    return answer;
  } catch (error) {
    guard.name(error, sent);
    const { response } = error as AxiosFailure;
    // A body that is cut is an error with the response as far as it came.
    if (response === undefined) guard.conclude(sent, "no-answer");
    else if (isCut(response)) guard.conclude(sent, "cut", response.status, headerOf(response));
    else close(guard, sent, response, config, kept.body);
    call.answer = () => {
      throw error;
    };
    throw error;
  }
}

/** Asks for the answer to an earlier payment; null if the seller does not give it. */
async function askSignedIn<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  { config, response }: AxiosFailure,
  bare: AxiosLike,
): Promise<AxiosAnswer | null> {
  const { call } = guard;
  if (call === null || response?.status !== 402 || config === undefined) return null;
  const signIn = await guard.signIn(call, headerOf(response)("payment-required"));
  if (signIn === null) return null;
  const isKept = guard.isAnswer !== null;
  const { paid, kept } = keepBody(paidConfig(signIn, config, bare), isKept, bare);
  try {
    const answer = await bare.request({ ...paid, maxRedirects: 0 });
    guard.name(answer, signIn);
    close(guard, signIn, answer, config, kept.body);
    return answer;
  } catch {
    return null; // The purchase continues without signing in.
  }
}

/** Keeps the body of an answer before axios turns it into an object. */
function keepBody(
  config: AxiosConfig,
  isKept: boolean,
  bare: AxiosLike,
): { readonly paid: AxiosConfig; readonly kept: { body?: unknown } } {
  const kept: { body?: unknown } = {};
  if (!isKept) return { paid: config, kept };
  const keep = (data: unknown): unknown => (kept.body = data);
  const { transformResponse = bare.defaults.transformResponse } = config;
  return { paid: { ...config, transformResponse: [keep, ...[transformResponse ?? []].flat()] }, kept };
}

/** A request with a payment, to the URL that answered 402. */
function paidConfig(sent: SentPayment, config: AxiosConfig, bare: AxiosLike): AxiosConfig {
  const url = sent.call.url ?? bare.getUri(config);
  const headers = lowerCased(config.headers);
  const isElsewhere = new URL(url).origin !== new URL(bare.getUri(config)).origin;
  for (const name of isElsewhere ? CREDENTIALS : PAYMENT_HEADERS) headers.delete(name);
  headers.set(sent.header, sent.value);
  const auth = isElsewhere ? undefined : config.auth;
  const paid = { ...config, url, headers: Object.fromEntries(headers), auth };
  // An interceptor may have put another function in place of the one that drops the payment.
  return watchRedirects({ ...paid, ...{ baseURL: "", params: {} } });
}

/** Records the answer to a payment; that of a stream, once all of it has come. */
function close<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  answer: AxiosAnswer,
  config: AxiosConfig,
  body: unknown,
): void {
  const { data, status } = answer;
  const { isAnswer } = guard;
  const header = headerOf(answer);
  const asked = lowerCased(config.headers);
  const isNotModified = isConditional((name) => asked.has(name));
  const end: BodyEnd = (read) =>
    guard.conclude(sent, eventOf(isAnswer, status, header, read), status, header);
  if (!isGoodStatus(status, isNotModified)) guard.conclude(sent, "error-answer", status, header);
  else if (data instanceof ReadableStream) answer.data = watchStream(data, end, isAnswer !== null);
  else if (!(data instanceof Readable)) end(bytesOf(body) ?? new Uint8Array());
  else if (isAnswer === null) finished(data, (error) => end(error == null ? new Uint8Array() : null));
  else answer.data = keepStream(data, end);
}

/** A stream with the same content, which is kept for `end`. */
function keepStream(data: Readable, end: BodyEnd): Readable {
  const chunks: Buffer[] = [];
  const copy = new PassThrough({
    transform(chunk: Buffer, _encoding, pass) {
      chunks.push(chunk);
      pass(null, chunk);
    },
  });
  return pipeline(data, copy, (error) => end(error == null ? Buffer.concat(chunks) : null));
}

/** Whether a good answer came in part. Only the http adapter says that all of it came. */
function isCut({ request, status }: AxiosAnswer): boolean {
  const { res } = (request ?? {}) as { res?: { complete?: unknown } };
  return isGoodStatus(status, true) && res?.complete !== true;
}

function headerOf({ headers }: AxiosAnswer): Header {
  const all = lowerCased(headers);
  return (name) => all.get(name) ?? null;
}

function lowerCased(headers: unknown): Map<string, string> {
  const pairs = Object.entries(headers ?? {}).filter(([, value]) => value != null);
  return new Map(pairs.map(([name, value]) => [name.toLowerCase(), String(value)]));
}

/** The body of a request, or null for one that cannot be read twice (a stream, a form). */
function bytesOf(data: unknown): Uint8Array | null {
  if (data === undefined || data === null) return new Uint8Array();
  if (data instanceof Uint8Array) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return typeof data === "string" ? Buffer.from(data) : null;
}
