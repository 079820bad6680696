/** The wallets that an official client signs with. The SDK has no public way to them. */

import { lowerAddress, parseAccount } from "./address.js";
import { members } from "./json.js";

/** The addresses of all wallets of a client (EVM: lower case), sorted. */
export function walletsOf(client: object): string[] {
  const wallets = new Set<string>();
  for (const networks of mapOf(registryOf(client)).values()) {
    for (const schemes of mapOf(networks).values()) {
      for (const scheme of mapOf(schemes).values()) {
        const wallet = addressOf(scheme);
        if (wallet !== null) wallets.add(wallet);
      }
    }
  }
  return [...wallets].sort();
}

/** The address that would sign an entry of `accepts`; null if the client does not show it. */
export function payerOf(client: object, version: unknown, entry: unknown): string | null {
  return addressOf(schemeOf(client, version, entry));
}

/** Whether a wallet is able to sign for a gas sponsoring extension. */
export function canSignFor(
  client: object,
  version: unknown,
  entry: unknown,
  extension: string,
): boolean {
  const method = extension === "eip2612GasSponsoring" ? "readContract" : "signTransaction";
  const scheme = (schemeOf(client, version, entry) ?? {}) as Readonly<Record<string, unknown>>;
  const signer = (scheme["signer"] ?? {}) as Readonly<Record<string, unknown>>;
  // The schemes of the SDK can be given an RPC URL instead of a signer that reads.
  return typeof signer[method] === "function" || scheme["options"] != null;
}

function schemeOf(client: object, version: unknown, entry: unknown): unknown {
  const { network, scheme } = members(entry);
  const networks = mapOf(mapOf(registryOf(client)).get(version));
  const patterns = [...networks.keys()];
  const key = networks.has(network)
    ? network
    : patterns.find((pattern) => matches(String(pattern), String(network)));
  return mapOf(networks.get(key)).get(scheme);
}

function registryOf(client: object): unknown {
  return (client as { registeredClientSchemes?: unknown }).registeredClientSchemes;
}

function addressOf(scheme: unknown): string | null {
  const { signer } = (scheme ?? {}) as { signer?: { address?: unknown } };
  return lowerAddress(signer?.address) ?? parseAccount(signer?.address);
}

function mapOf(value: unknown): ReadonlyMap<unknown, unknown> {
  return value instanceof Map ? value : new Map();
}

/** Whether a network is in a pattern such as `eip155:*`. */
function matches(pattern: string, network: string): boolean {
  return pattern.endsWith("*") && network.startsWith(pattern.slice(0, -1));
}
