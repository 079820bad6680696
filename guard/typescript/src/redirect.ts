/**
 * Follows redirects as `fetch` does, and says which URLs redirected. A payment never follows one,
 * and no credential follows one to another origin.
 */

import type { Fetch } from "./transport.js";
import { copyOf, CREDENTIALS, HOPS_MAX, isSameUrl } from "./request.js";
import { PAYMENT_HEADERS } from "./signed.js";

const REDIRECTS = [301, 302, 303, 307, 308];

/** An answer, and the URLs that led to it. */
export interface Followed {
  readonly answer: Response;
  readonly hops: readonly string[];
}

/** Sends a request. Its redirects are followed unless its `redirect` says otherwise. */
export async function follow(first: Request, fetch: Fetch): Promise<Followed> {
  if (first.redirect !== "follow") return { answer: await fetch(first), hops: [] };
  const hops: string[] = [];
  for (let request: Request = first; ; ) {
    const spare = copyOf(request);
    const answer = await fetch(new Request(request, { redirect: "manual" }));
    const next = redirected(spare, answer);
    const isFollowed = answer.url !== "" && !isSameUrl(answer.url, request.url);
    if (next !== null || isFollowed) hops.push(request.url);
    if (next === null) {
      if (hops.length > 0) Object.defineProperty(answer, "redirected", { value: true });
      return { answer, hops };
    }
    if (hops.length > HOPS_MAX) {
      throw new TypeError(`${first.url} redirects more than ${HOPS_MAX} times.`);
    }
    await answer.body?.cancel();
    request = next;
  }
}

/** The request that a redirect leads to, without a payment; null for any other answer. */
export function redirected(request: Request, answer: Response): Request | null {
  const location = answer.headers.get("location");
  if (!REDIRECTS.includes(answer.status) || location === null) return null;
  const asked = new URL(request.url);
  const url = new URL(location, asked);
  if (!/^https?:$/.test(url.protocol)) {
    throw new TypeError(`${request.url} redirects to ${url.href}, which is not a web URL.`);
  }
  if (url.hash === "") url.hash = asked.hash;
  const isGet = becomesGet(request, answer.status);
  const next = isGet ? getRequest(url, request) : new Request(url, request);
  const dropped = url.origin === asked.origin ? PAYMENT_HEADERS : CREDENTIALS;
  for (const name of dropped) next.headers.delete(name);
  return next;
}

/** Whether a redirect changes the method to GET. */
function becomesGet({ method }: Request, status: number): boolean {
  if (status === 303) return !["GET", "HEAD"].includes(method);
  return method === "POST" && (status === 301 || status === 302);
}

function getRequest(url: URL, { headers, signal }: Request): Request {
  const request = new Request(url, { headers, signal });
  for (const name of ["encoding", "language", "length", "location", "type"]) {
    request.headers.delete(`content-${name}`);
  }
  return request;
}
