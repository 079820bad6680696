/** The keys by which the journal knows accounts and purchases (guard/cases/purchases.json). */

import { createHash } from "node:crypto";
import { parseResource } from "./resource.js";

const KEY_MAX = 256;
const HEADERS = ["range", "accept", "content-type"];

/** The account of a client: a digest of its wallets on all networks. */
export function accountId(wallets: Iterable<string>): string {
  const names = new Set([...wallets].map((one) => (one.startsWith("0x") ? one.toLowerCase() : one)));
  const digest = sha256([...names].sort().join("\n"));
  return digest.subarray(0, 16).toString("base64url");
}

/** The key of a purchase that the caller named. Throws TypeError. */
export function givenKey(purchase: string): string {
  if (typeof purchase !== "string" || purchase === "" || purchase.length > KEY_MAX) {
    throw new TypeError(`A purchase is named by 1 to ${KEY_MAX} characters.`);
  }
  return `key:${purchase}`;
}

/** The key of a purchase that is known by its request only. */
export function requestKey(
  method: string,
  url: string,
  header: (name: string) => string | null,
  body: Uint8Array,
): string {
  const values = HEADERS.map((name) => (header(name) ?? "").trim());
  const parts = [method.toUpperCase(), canonicalUrl(url), ...values, body];
  return `sha256:${sha256(Buffer.concat(parts.map(sha256))).toString("hex")}`;
}

/** The hex SHA-256 of a canonical URL with its query. */
export function urlDigest(url: string): string {
  return sha256(canonicalUrl(url)).toString("hex");
}

/** The canonical resource and the query as it was sent; no fragment is sent. */
function canonicalUrl(url: string): string {
  const whole = withoutFragment(url);
  const resource = parseResource(whole);
  if (resource === null) return whole; // the decision refuses it
  const mark = whole.indexOf("?");
  return resource.scheme === "mcp" || mark === -1 ? resource.url : resource.url + whole.slice(mark);
}

function withoutFragment(url: string): string {
  return url.replace(/#.*$/s, "");
}

function sha256(content: string | Uint8Array): Buffer {
  return createHash("sha256").update(content).digest();
}
