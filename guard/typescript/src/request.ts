/** Which headers and methods may follow a redirect. */

import { PAYMENT_HEADERS } from "./signed.js";

/** The most redirects that are followed for one request. */
export const HOPS_MAX = 10;

/** Headers that never follow a redirect to another origin, in lower case. */
export const CREDENTIALS: readonly string[] = [
  ...["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"],
  ...["x-auth-token", "sign-in-with-x", ...PAYMENT_HEADERS],
];

/**
 * Why a 402 that came after a redirect cannot be paid, or null. The payment is sent to where the
 * 402 came from, and only GET and HEAD are sent there as they were.
 */
export function redirectObstacle(method: string, asked: string, answered: string): string | null {
  const isSafe = ["GET", "HEAD"].includes(method.toUpperCase());
  if (isSafe || isSameUrl(asked, answered)) return null;
  return `The request was redirected to ${answered}. Send it there.`;
}

/** Whether two URLs differ in their fragment at most. */
export function isSameUrl(one: string, other: string): boolean {
  const [first, second] = [one, other].map((url) => (URL.canParse(url) ? new URL(url).href : url));
  return withoutFragment(String(first)) === withoutFragment(String(second));
}

/** Whether a request may be answered by 304. `has` looks for a header by its name in lower case. */
export function isConditional(has: (name: string) => boolean): boolean {
  return has("if-none-match") || has("if-modified-since");
}

/** A request whose body can be read again. A request without a body needs no copy. */
export function copyOf(request: Request): Request {
  return request.body === null ? request : request.clone();
}

function withoutFragment(url: string): string {
  return url.replace(/#.*$/s, "");
}
