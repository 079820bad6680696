/** What the owner of a wallet gives its guard. */

import type { Code } from "./decision.js";
import type { Terms } from "./offer.js";
import type { Policy } from "./policy.js";
import type { Nodes } from "./purchase.js";
import type { BundleLocation, PinnedKey } from "./source.js";

/** A payment that somebody has to agree to. */
export interface Question {
  readonly code: Code;
  readonly reason: string;
  /** The URL that asks to be paid. */
  readonly url: string;
  readonly terms: Terms;
}

export interface GuardOptions {
  readonly bundle: BundleLocation;
  readonly key: PinnedKey;
  /** What differs from `DEFAULT_POLICY`. */
  readonly policy?: Partial<Policy>;
  /** Who is asked; without it, a payment that needs consent is refused. */
  readonly ask?: (question: Question) => boolean | Promise<boolean>;
  /** The file of the journal, which one process writes; without it, the journal is in memory. */
  readonly journal?: string;
  /** JSON-RPC URLs by network (CAIP-2), which say what became of a payment without an answer. */
  readonly nodes?: Nodes;
  /** A file that keeps the last good bundle for times without a network. */
  readonly cache?: string;
  /** The most milliseconds that a payment waits for the first bundle: 5000 by default. */
  readonly bundleTimeoutMs?: number;
}
