/** One request of the caller, from its 402 to its answer. */

import type { Code } from "./decision.js";
import type { Reservation } from "./journal.js";
import type { Terms } from "./offer.js";

/** A payment that was not made. `code` says why. */
export class PaymentRefused extends Error {
  override readonly name = "PaymentRefused";
  readonly code: Code;

  constructor(code: Code, reason: string) {
    super(`Payment refused (${code}): ${reason}`);
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
}
