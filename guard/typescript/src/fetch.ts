/** The guard around `fetch`: below the official wrapper, where requests leave, and above it. */

import type { Call, SentPayment } from "./call.js";
import { PAYMENT_HEADERS } from "./payment.js";
import { CREDENTIALS, digest, redirectObstacle } from "./request.js";
import type { PayingClient, TransportGuard } from "./transport.js";

export type Fetch = typeof globalThis.fetch;

/** `wrapFetchWithPayment` of `@x402/fetch`. */
export type WrapFetch<Client> = (fetch: Fetch, client: Client) => Fetch;

export function guardFetch<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  wrap: WrapFetch<Client>,
  fetch: Fetch,
): Fetch {
  const paying = wrap(async (input, init) => {
    const isWhole = input instanceof Request && init === undefined;
    const request = isWhole ? input : new Request(input, init);
    const sent = guard.admit((name) => request.headers.get(name));
    return sent === null ? ask(guard.call, request, fetch) : pay(guard, sent, request, fetch);
  }, guard.client);
  return (input, init) => guard.run(() => paying(input, init));
}

/** Sends a request without a payment, and notes where a 402 came from. */
async function ask(call: Call | null, request: Request, fetch: Fetch): Promise<Response> {
  const copy = request.body === null ? null : request.clone();
  const answer = await fetch(request);
  if (answer.status === 402 && call !== null) {
    const body = await copy?.arrayBuffer();
    call.url = answer.url === "" ? null : answer.url;
    call.request = digest(request.method, request.url, new Uint8Array(body ?? []));
    call.obstacle = redirectObstacle(request.method, request.url, answer.url);
  }
  return answer;
}

/** Sends a payment to the URL that was judged, and follows no redirect with it. */
async function pay<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  request: Request,
  fetch: Fetch,
): Promise<Response> {
  const url = guard.call?.url ?? request.url;
  const aimed = url === request.url ? request : new Request(url, request);
  const paid = new Request(aimed, { redirect: "manual" });
  if (new URL(url).origin !== new URL(request.url).origin) {
    for (const name of CREDENTIALS) paid.headers.delete(name);
  }
  for (const name of PAYMENT_HEADERS) paid.headers.delete(name);
  paid.headers.set(sent.header, sent.value);
  let answer: Response;
  try {
    answer = await fetch(paid);
  } catch (error) {
    guard.unanswered(sent);
    throw error;
  }
  guard.answered(sent, answer.status, (name) => answer.headers.get(name));
  return answer;
}
