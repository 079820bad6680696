/**
 * Which records of the bundle count for a request. Every hop counts. The bundle contains only
 * digests of its resources, so other paths of a host are not found in it, except the usual variants
 * of a path.
 */

import type { Bundle } from "./bundle.js";
import type { Known } from "./decision.js";
import type { Conduct } from "./record.js";
import { parseResource, type Resource, variants } from "./resource.js";

/** What a bundle knows about a request, whoever is paid. */
export interface KnownRequest extends Omit<Known, "payee"> {
  readonly bundle: Bundle | null;
  readonly url: unknown;
  readonly hops: readonly string[];
}

/**
 * A bundle's records for a URL and its hops. With `tool`, the URL is that of an MCP server, which
 * counts like a hop. Throws RecordError.
 */
export function lookUp(
  bundle: Bundle | null,
  url: unknown,
  hops: readonly string[],
  tool: string | null = null,
): KnownRequest {
  const request = { bundle, url, hops };
  if (bundle === null) return { ...request, record: null, inherited: [], host: null, asOf: null };
  const asked = parseResource(url);
  const resources = [asked, ...hops.map(parseResource)].filter((one) => one !== null);
  const others = new Map<string, Resource | null>();
  for (const resource of resources) {
    others.set(resource.url, resource);
    for (const variant of variants(resource)) others.set(variant, parseResource(variant));
  }
  if (asked !== null && tool === null) others.delete(asked.url);
  const found = [...others.values()].map((one) => (one === null ? null : bundle.find(one)));
  return {
    ...request,
    record: asked === null ? null : bundle.find(asked, tool),
    inherited: found.filter((record) => record !== null),
    host: worstHost(bundle, resources),
    asOf: bundle.header.asOf,
  };
}

/** A bundle's record of a payTo. Throws RecordError. */
export function lookUpPayee(bundle: Bundle | null, payTo: unknown): Conduct | null {
  return bundle?.conduct(`payto:${lowerHex(String(payTo))}`) ?? null;
}

/** The worst record of the hosts of some URLs: one whose endpoints are all abusive comes first. */
function worstHost(bundle: Bundle, resources: readonly Resource[]): Conduct | null {
  const names = new Set(resources.map(({ host }) => `host:${host}`));
  const found = [...names].map((name) => bundle.conduct(name)).filter((one) => one !== null);
  const rank = ({ abusive, endpoints }: Conduct): number =>
    abusive === endpoints ? Infinity : abusive;
  return found.sort((one, other) => (rank(other) > rank(one) ? 1 : -1))[0] ?? null;
}

/** An EVM address in lower case; base58 keeps its case. */
function lowerHex(address: string): string {
  return address.startsWith("0x") ? address.toLowerCase() : address;
}
