/** What identifies a request, and where a payment for it is sent. */

import { createHash, type Hash } from "node:crypto";

/**
 * By what the same request is known again: SHA-256 over its method, URL and body, in hex. The URL
 * is the one that the program asked: a seller chooses where its redirects lead.
 */
export function digest(method: string, url: string, body: Uint8Array): string {
  const whole = withoutFragment(url);
  const parts = [method.toUpperCase(), whole, body].map((part) => sha256(part).digest());
  return sha256(Buffer.concat(parts)).digest("hex");
}

/** Headers that `fetch` leaves out when a redirect leads to another origin. */
export const CREDENTIALS = ["authorization", "cookie", "proxy-authorization"];

/**
 * Why a 402 that came after a redirect cannot be paid, or null. The payment is sent to where the
 * 402 came from, and only GET and HEAD are sent there as they were.
 */
export function redirectObstacle(method: string, asked: string, answered: string): string | null {
  const isSafe = ["GET", "HEAD"].includes(method.toUpperCase());
  if (isSafe || withoutFragment(asked) === withoutFragment(answered)) return null;
  return `The request was redirected to ${answered}. Send it there.`;
}

function withoutFragment(url: string): string {
  return url.replace(/#.*$/s, "");
}

function sha256(content: string | Uint8Array): Hash {
  return createHash("sha256").update(content);
}
