/** The guard around axios: between the official wrapper and the instance. */

import { randomUUID } from "node:crypto";
import type { Call, SentPayment } from "./call.js";
import { PAYMENT_HEADERS } from "./payment.js";
import { CREDENTIALS, digest, redirectObstacle } from "./request.js";
import type { PayingClient, TransportGuard } from "./transport.js";

/**
 * The part of an `AxiosInstance` that the guard uses. Its parameters are `any`, so that the types
 * of every version of axios fit.
 */
export interface AxiosLike {
  readonly interceptors: { readonly response: { use(ok: any, failed: any): number } };
  request(config: any): Promise<AxiosAnswer>;
  getUri(config: any): string;
  create(): AxiosLike;
  readonly defaults: object;
}

/** `wrapAxiosWithPayment` of `@x402/axios`. */
export type WrapAxios<Client, Instance> = (instance: Instance, client: Client) => unknown;

interface AxiosConfig {
  readonly url?: string;
  readonly method?: string;
  readonly headers?: unknown;
  readonly data?: unknown;
  readonly auth?: unknown;
  readonly maxRedirects?: number;
}

interface AxiosAnswer {
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
  // The request that was answered with 402 holds them already; and what is deleted stays deleted.
  Object.assign(bare.defaults, { headers: {}, params: undefined, auth: undefined });
  // All that the wrapper gets of the instance: whatever else it would use fails, and pays nothing.
  const seam: Pick<AxiosLike, "interceptors" | "request"> = {
    interceptors: {
      response: {
        use: (ok: unknown, failed: (failure: AxiosFailure) => unknown) =>
          instance.interceptors.response.use(ok, (failure: AxiosFailure) =>
            guard.run(async (call) => {
              note(call, failure, instance);
              return failed(failure);
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
  wrap(seam as unknown as Instance, guard.client);
  return instance;
}

/** Notes where a 402 came from. */
function note(call: Call, { config, response }: AxiosFailure, instance: AxiosLike): void {
  if (response?.status !== 402 || config === undefined) return;
  const asked = instance.getUri(config);
  const answered = config.maxRedirects === 0 ? asked : landedAt(response, config);
  const { method = "get", data } = config;
  call.url = answered;
  call.request = digest(method, asked, bytesOf(data));
  call.obstacle =
    answered === null
      ? "axios does not say which URL answered: use its http adapter, or maxRedirects: 0."
      : redirectObstacle(method, asked, answered);
}

/** The URL of an answer after redirects, which the http adapter alone keeps, or null. */
function landedAt(response: AxiosAnswer, { auth }: AxiosConfig): string | null {
  const { res } = (response.request ?? {}) as { res?: { responseUrl?: unknown } };
  if (typeof res?.responseUrl !== "string") return null;
  const url = new URL(res.responseUrl);
  // The adapter writes the option `auth` into the URL.
  if (auth !== undefined) Object.assign(url, { username: "", password: "" });
  return url.href;
}

/** Sends a payment to the URL that was judged, and follows no redirect with it. */
async function pay<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  config: AxiosConfig,
  bare: AxiosLike,
): Promise<AxiosAnswer> {
  const url = guard.call?.url ?? bare.getUri(config);
  const headers = lowerCased(config.headers);
  for (const name of PAYMENT_HEADERS) headers.delete(name);
  headers.set(sent.header, sent.value);
  const isElsewhere = new URL(url).origin !== new URL(bare.getUri(config)).origin;
  if (isElsewhere) for (const name of CREDENTIALS) headers.delete(name);
  const paid = { ...config, url, headers: Object.fromEntries(headers), maxRedirects: 0 };
  const auth = isElsewhere ? undefined : config.auth;
  try {
    const answer = await bare.request({ ...paid, baseURL: "", params: {}, auth });
    close(guard, sent, answer);
    return answer;
  } catch (error) {
    const { response } = error as AxiosFailure;
    if (response === undefined) guard.unanswered(sent);
    else close(guard, sent, response);
    throw error;
  }
}

function close<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  answer: AxiosAnswer,
): void {
  const headers = lowerCased(answer.headers);
  guard.answered(sent, answer.status, (name) => headers.get(name) ?? null);
}

function lowerCased(headers: unknown): Map<string, string> {
  const pairs = Object.entries(headers ?? {}).filter(([, value]) => value != null);
  return new Map(pairs.map(([name, value]) => [name.toLowerCase(), String(value)]));
}

/** The body of a request; one that cannot be read twice (a stream, a form) is like no other. */
function bytesOf(data: unknown): Uint8Array {
  if (data === undefined || data === null) return new Uint8Array();
  if (data instanceof Uint8Array) return data;
  return Buffer.from(typeof data === "string" ? data : randomUUID());
}
