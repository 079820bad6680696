/** The guard around `fetch`: below the official wrapper, where requests leave, and above it. */

import type { SentPayment } from "./call.js";
import { follow, redirected } from "./redirect.js";
import { isGoodStatus } from "./payment-state.js";
import { requestKey } from "./purchase-key.js";
import { copyOf, CREDENTIALS, isConditional, redirectObstacle } from "./request.js";
import { PAYMENT_HEADERS } from "./signed.js";
import { eventOf, type Fetch, type Header, type PayingClient, type TransportGuard } from "./transport.js";
import { watchResponse } from "./watch.js";

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
    return sent === null ? ask(guard, request, fetch) : pay(guard, sent, request, fetch);
  }, guard.client);
  return (input, init) => guard.run(() => paying(input, init));
}

/** Sends a request without a payment, and records where a 402 came from. */
async function ask<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  request: Request,
  fetch: Fetch,
): Promise<Response> {
  const { call } = guard;
  const spare = copyOf(request);
  const another = copyOf(request);
  const { answer, hops } = await follow(request, fetch);
  if (answer.status === 402 && call !== null) {
    const body = new Uint8Array(await spare.arrayBuffer());
    call.url = answer.url === "" ? null : answer.url;
    call.hops = hops;
    call.key = requestKey(request.method, request.url, (name) => request.headers.get(name), body);
    call.obstacle = redirectObstacle(request.method, request.url, answer.url);
    const signIn = await guard.signIn(call, answer.headers.get("payment-required"));
    const found = signIn === null ? null : await askSignedIn(guard, signIn, another, fetch);
    if (found !== null) {
      await answer.body?.cancel();
      return found;
    }
  }
  return answer;
}

/** Asks for the answer to an earlier payment; null if the seller does not give it. */
async function askSignedIn<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  signIn: SentPayment,
  request: Request,
  fetch: Fetch,
): Promise<Response | null> {
  try {
    const answer = await fetch(paidRequest(signIn, request));
    const header: Header = (name) => answer.headers.get(name);
    if (isGoodStatus(answer.status)) return watch(guard, signIn, answer, header);
    await answer.body?.cancel();
  } catch {
    // The purchase continues without signing in.
  }
  return null;
}

/** Records a good answer to a payment once all of it has come. */
function watch<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  answer: Response,
  header: Header,
): Response {
  const { isAnswer } = guard;
  const { status } = answer;
  const end = (body: Uint8Array | null): void =>
    guard.conclude(sent, eventOf(isAnswer, status, header, body), status, header);
  const watched = watchResponse(answer, end, isAnswer !== null);
  guard.name(watched, sent);
  return watched;
}

/**
 * Sends a payment to the URL of the decision. A redirect is followed without the payment, and the
 * answer there is the payment's answer.
 */
async function pay<Client extends PayingClient>(
  guard: TransportGuard<Client>,
  sent: SentPayment,
  request: Request,
  fetch: Fetch,
): Promise<Response> {
  let header = (_name: string): string | null => null;
  try {
    const paid = paidRequest(sent, request);
    const spare = copyOf(paid);
    const first = await fetch(paid);
    header = (name) => first.headers.get(name);
    const next = request.redirect === "follow" ? redirected(spare, first) : null;
    await (next === null ? null : first.body?.cancel());
    const last = next === null ? first : (await follow(next, fetch)).answer;
    header = (name) => last.headers.get(name) ?? first.headers.get(name);
    const isNotModified = isConditional((name) => paid.headers.has(name));
    const isGood = isGoodStatus(last.status, isNotModified);
    if (!isGood) guard.conclude(sent, "error-answer", last.status, header);
    const answer = isGood ? watch(guard, sent, last, header) : last;
    guard.name(answer, sent);
    sent.call.answer = () => answer;
    return answer;
  } catch (error) {
    guard.name(error, sent);
    guard.conclude(sent, "no-answer", null, header);
    throw error;
  }
}

/** A request with a payment, to the URL that answered 402. */
function paidRequest({ call, header, value }: SentPayment, request: Request): Request {
  const url = call.url ?? request.url;
  const aimed = url === request.url ? request : new Request(url, request);
  const paid = new Request(aimed, { redirect: "manual" });
  const isElsewhere = new URL(url).origin !== new URL(request.url).origin;
  for (const name of isElsewhere ? CREDENTIALS : PAYMENT_HEADERS) paid.headers.delete(name);
  paid.headers.set(header, value);
  return paid;
}
