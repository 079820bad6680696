/**
 * A second opinion about unknown endpoints: the service's free preflight, if the owner wants it. It
 * reveals to the service which host is about to be paid, so it is off by default.
 */

import { type Code, CODES } from "./codes.js";
import { type Ask, type Decision, refuse } from "./decision.js";
import { members } from "./json.js";
import { parseResource } from "./resource.js";
import { type BundleLocation, isWebAddress } from "./source.js";

const TIMEOUT_MS = 5000;
const ABOUT: readonly Code[] = ["unknown-resource", "bundle-stale"];

/**
 * The decision of the service of a bundle about an unknown endpoint; the question if it has none.
 * Waits for at most five seconds. Never throws.
 */
export async function askPreflight(
  service: BundleLocation,
  question: Ask,
  url: string | null,
): Promise<Decision> {
  const { code, terms } = question;
  const resource = parseResource(url);
  if (!ABOUT.includes(code) || resource === null || !isWebAddress(service)) return question;
  const preflight = new URL("/trust/preflight", service);
  const { payTo, amount, network } = terms;
  const query = { resource: resource.url, payTo, amount: String(amount), network };
  preflight.search = String(new URLSearchParams(query));
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await fetch(preflight, { redirect: "manual", signal });
    if (answer.status !== 200) return question;
    const { decision, code } = members(await answer.json());
    if (decision === "allow") return { decision, terms };
    if (decision !== "refuse" || !CODES.includes(code as Code)) return question;
    return refuse(code as Code, "The service refuses it in its preflight.");
  } catch {
    return question;
  }
}
