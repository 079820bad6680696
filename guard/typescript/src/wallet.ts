/** Which accounts an official client signs with. The SDK has no public way to them. */

import { lowerAddress } from "./address.js";
import { members } from "./json.js";

/** The addresses (lower-case hex) of all accounts that a client signs with on EVM chains. */
export function payersOf(client: object): Set<string> {
  const payers = new Set<string>();
  for (const networks of mapOf(registryOf(client)).values()) {
    for (const schemes of mapOf(networks).values()) {
      for (const scheme of mapOf(schemes).values()) {
        const payer = addressOf(scheme);
        if (payer !== null) payers.add(payer);
      }
    }
  }
  return payers;
}

/** The address that would sign an entry of `accepts`; null where the client does not show it. */
export function payerOf(client: object, version: unknown, entry: unknown): string | null {
  const { network, scheme } = members(entry);
  const networks = mapOf(mapOf(registryOf(client)).get(version));
  const patterns = [...networks.keys()];
  const key = networks.has(network)
    ? network
    : patterns.find((pattern) => matches(String(pattern), String(network)));
  return addressOf(mapOf(networks.get(key)).get(scheme));
}

function registryOf(client: object): unknown {
  return (client as { registeredClientSchemes?: unknown }).registeredClientSchemes;
}

function addressOf(scheme: unknown): string | null {
  const { signer } = (scheme ?? {}) as { signer?: { address?: unknown } };
  return lowerAddress(signer?.address);
}

function mapOf(value: unknown): ReadonlyMap<unknown, unknown> {
  return value instanceof Map ? value : new Map();
}

/** Whether a network is in a pattern such as `eip155:*`. */
function matches(pattern: string, network: string): boolean {
  return pattern.endsWith("*") && network.startsWith(pattern.slice(0, -1));
}
