/**
 * The records that count for a URL besides its own: those of the URLs that redirected to it, and of
 * other ways to write one of these paths. The bundle has only hashes of its resources, so other
 * paths of a host are not found in it.
 */

import type { Bundle } from "./bundle.js";
import type { EndpointRecord } from "./record.js";
import { parseResource, type Resource, variants } from "./resource.js";

/** What a bundle knows of a URL, and of the URLs that redirected to it. Throws RecordError. */
export function knownOf(
  bundle: Bundle,
  url: unknown,
  hops: readonly string[],
): { readonly record: EndpointRecord | null; readonly inherited: readonly EndpointRecord[] } {
  const asked = parseResource(url);
  const resources = [asked, ...hops.map(parseResource)].filter((one) => one !== null);
  const others = new Map<string, Resource | null>();
  for (const resource of resources) {
    others.set(resource.url, resource);
    for (const variant of variants(resource)) others.set(variant, parseResource(variant));
  }
  if (asked !== null) others.delete(asked.url);
  const find = (one: Resource | null): EndpointRecord | null =>
    one === null ? null : bundle.find(one);
  const inherited = [...others.values()].map(find).filter((record) => record !== null);
  return { record: find(asked), inherited };
}
