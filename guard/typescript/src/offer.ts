/** What a seller asks to be paid, before and after it was checked. */

import { members } from "./json.js";
import { V1_NETWORKS } from "./units.js";

/** One entry of `accepts` as the seller wrote it: every field may hold anything. */
export interface Offer {
  readonly scheme: unknown;
  readonly network: unknown;
  readonly asset: unknown;
  readonly amount: unknown;
  readonly payTo: unknown;
  readonly timeout: unknown;
  readonly extra: unknown;
  /** What the 402 names as its resource. */
  readonly resourceUrl: unknown;
}

/** An offer that is well formed. */
export interface Terms {
  /** CAIP-2. */
  readonly network: string;
  /** The token's contract, in lower-case hex. */
  readonly asset: string;
  /** Atomic units of the token. */
  readonly amount: bigint;
  readonly microUsd: bigint;
  /** Lower-case hex. */
  readonly payTo: string;
  /** The most seconds for which the authorization may be valid. */
  readonly timeout: number;
  /** The address in `extra.facilitatorAddress` in lower-case hex, or null. */
  readonly facilitator: string | null;
}

/**
 * The offer in an entry of `accepts` from JSON. Its 402 says the version of x402: the words of the
 * other one, which an entry may hold beside them, are not what is signed. Never throws.
 */
export function readOffer(entry: unknown, resourceUrl: unknown, version: unknown = 2): Offer {
  const fields = members(entry);
  const isV1 = version === 1;
  const network = fields["network"];
  return {
    scheme: fields["scheme"],
    network: isV1 ? V1_NETWORKS.get(String(network)) : network,
    asset: fields["asset"],
    amount: fields[isV1 ? "maxAmountRequired" : "amount"],
    payTo: fields["payTo"],
    timeout: fields["maxTimeoutSeconds"],
    extra: fields["extra"],
    resourceUrl: isV1 ? fields["resource"] : resourceUrl,
  };
}
