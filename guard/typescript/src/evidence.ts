/**
 * What readings of a chain prove about a payment. Pure.
 *
 * Only the chain decides that a payment is used or dead; an answer, an error code, an expiry or a
 * silent node decides nothing. The rules by scheme are cases in guard/cases/payments.json.
 */

import type { Evidence } from "./payment-state.js";

/** Blocks above the one that shows a small payment unused. */
export const MIN_DEPTH = 12;
/** Micro-dollars; above it the block must be finalized. */
export const MAX_SHALLOW_EXPOSURE = 1_000_000n;

/** Whether an authorization is used at one block; `isUsed` null: the node did not answer. */
export interface BlockReading {
  readonly timestamp: number;
  readonly depth: number;
  readonly isFinalized: boolean;
  readonly isUsed: boolean | null;
}

/**
 * Judges the readings of an EIP-3009 authorization or a Permit2 nonce. `latest` is whether it is
 * used at the latest block (null: unknown), `deadFrom` the first block timestamp at which an unused
 * one cannot be used any more.
 */
export function proveEvm(
  latest: boolean | null,
  block: BlockReading | null,
  deadFrom: number,
  exposure: bigint,
): Evidence {
  if (latest === true || block?.isUsed === true) return "used";
  if (latest === null) return "unknown";
  if (block === null || block.isUsed === null || block.timestamp < deadFrom) return "unused";
  const isSmall = exposure <= MAX_SHALLOW_EXPOSURE;
  return block.isFinalized || (isSmall && block.depth >= MIN_DEPTH) ? "dead" : "unused";
}

/** Judges a complete scan of the payer's token account for the payer's own signature. */
export function proveSolana(
  isFound: boolean | null,
  finalizedHeight: number | null,
  lastValidHeight: number | null,
): Evidence {
  if (isFound === true) return "used";
  if (isFound === null) return "unknown";
  if (finalizedHeight === null || lastValidHeight === null) return "unused";
  return finalizedHeight > lastValidHeight ? "dead" : "unused";
}

/** Combines the evidence of several nodes: one proves `used`, only all prove `dead`. */
export function combine(readings: readonly Evidence[]): Evidence {
  if (readings.includes("used")) return "used";
  if (readings.length === 0 || readings.includes("unknown")) return "unknown";
  return readings.includes("unused") ? "unused" : "dead";
}
