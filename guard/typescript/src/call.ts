/** One request of the caller, from its 402 to its answer. */

import type { Code } from "./decision.js";
import type { Reservation } from "./journal.js";
import type { Terms } from "./offer.js";

/** What to do about a refusal. */
const ADVICE: Readonly<Record<Code, string>> = {
  "resource-mismatch":
    "Send the request to the seller's own address, through the client that the guard returned.",
  "asset-unknown":
    "Add the token to `assets` of the policy to pay with it; another scheme is never paid.",
  "amount-invalid": "The seller has to mend its offer.",
  "over-call-cap": "Raise `maxCall` of the policy if the price is right.",
  "payto-malformed": "The seller has to mend its offer.",
  "timeout-invalid": "Raise `maxTimeoutSeconds` of the policy, or tell the seller.",
  "not-payable": "Use another seller.",
  avoid: "Use another seller.",
  "payto-unknown":
    "Ask the seller in another way whether the address is its own, or wait for a newer list.",
  "network-unknown":
    "Ask the seller in another way whether it has moved, or wait for a newer list.",
  "price-jump":
    "Wait for a newer list, or raise `priceFactor` of the policy if the price is right.",
  caution: "Give the guard a function `ask` that agrees.",
  "grade-low": "Give the guard a function `ask` that agrees, or lower `minGrade` of the policy.",
  "bundle-old": "Look whether the bundle can be had, and whether the key is the one that signs it.",
  "unknown-resource":
    "Give the guard a function `ask` that agrees, or raise `unknownMax` of the policy.",
  "bundle-stale": "Look whether the address of the bundle can be reached, or give the guard `ask`.",
  "over-host-budget": "Wait for the next day (UTC), or raise `maxHostDay` of the policy.",
  "over-day-budget": "Wait for the next day (UTC), or raise `maxDay` of the policy.",
  "retry-storm":
    "Look why the answers did not serve; the request may be paid again in ten minutes.",
  "signed-differs": "Look for a hook, an extension or a redirect that changes the payment.",
};

/** A payment that was not made. `code` says why. */
export class PaymentRefused extends Error {
  override readonly name = "PaymentRefused";
  readonly code: Code;

  constructor(code: Code, reason: string) {
    super(`Payment refused (${code}): ${reason} ${ADVICE[code]}`);
    this.code = code;
  }
}

/** What the transport sees of a request, and the client's hooks do not. */
export interface Call {
  /** The URL that answered 402, after redirects; null before one did. */
  url: string | null;
  /** Another name by which the 402 may call what was asked. */
  alias: string | null;
  /** SHA-256 of the request that the program made (method, URL, body) in hex. */
  request: string;
  /** Why this 402 cannot be paid whatever it offers. */
  obstacle: string | null;
  readonly allowed: Allowed[];
  refused: PaymentRefused | null;
}

export function newCall(): Call {
  return { url: null, alias: null, request: "", obstacle: null, allowed: [], refused: null };
}

/** Leave to send one payment. */
export interface Allowed {
  /** The offer itself, frozen: the client must sign this object. */
  readonly requirements: unknown;
  readonly reservation: Reservation;
  /** What is sent instead of a second payment for the same request. */
  readonly again: SentPayment | null;
  /** Of the payment that was sent by this leave; null until then. */
  nonce: string | null;
}

/** A payment in the header that carries it. */
export interface SentPayment {
  readonly header: string;
  readonly value: string;
  readonly nonce: string;
  /** Unix seconds. */
  readonly validBefore: number;
  readonly terms: Terms;
  readonly request: string;
  /** The canonical resource that it was signed for. */
  readonly resource: string;
}
