/** The options that the owner of a wallet gives its guard. */

import type { Code } from "./codes.js";
import type { Store } from "./journal-file.js";
import type { Nodes } from "./nodes.js";
import type { Terms } from "./offer.js";
import type { Event, Payment } from "./payment-state.js";
import type { Policy } from "./policy.js";
import type { SignInAccount } from "./sign-in.js";
import type { PinnedKey } from "./signature.js";
import type { BundleLocation } from "./source.js";
import type { IsAnswer } from "./transport.js";

/** A payment that needs consent. Nothing in it was written by the seller but its host and payTo. */
export interface Question {
  readonly code: Code;
  readonly reason: string;
  /** The URL that asks to be paid. */
  readonly url: string;
  readonly terms: Terms;
}

export interface GuardOptions {
  readonly bundle: BundleLocation;
  /** The pinned key, or several. */
  readonly key: PinnedKey | readonly PinnedKey[];
  /** What differs from `DEFAULT_POLICY`. */
  readonly policy?: Partial<Policy>;
  /** Called for consent; without it, a payment that needs consent is refused. Only `true` allows it. */
  readonly ask?: (question: Question) => boolean | Promise<boolean>;
  /**
   * The Ed25519 public key (base64url) of an approver: without `ask`, questions wait in the journal
   * for `tollgauge-guard approve`.
   */
  readonly approver?: string;
  /** The file of the journal, `MEMORY`, or a store of yours. Default: one file per user. */
  readonly journal?: string | Store;
  /** A signed payment also survives a power failure. */
  readonly durable?: boolean;
  /** JSON-RPC URLs by network (CAIP-2): they show what happened to a payment without an answer. */
  readonly nodes?: Nodes;
  /**
   * The account that pays, if it may sign in (extension `sign-in-with-x`): the answer to a payment
   * that was made is requested in this way before anything else is tried.
   */
  readonly signIn?: SignInAccount;
  /** What answers a purchase, in addition to a complete 2xx. It stays open otherwise. */
  readonly isAnswer?: IsAnswer;
  /** Is called after each change of a payment's state. */
  readonly onChange?: (payment: Payment, event: Event) => void;
  /** The folder for downloaded bundles. Default: one per user. */
  readonly cache?: string;
  /** The most milliseconds that a payment waits for the first bundle. Default: 5000. */
  readonly bundleTimeoutMs?: number;
}
