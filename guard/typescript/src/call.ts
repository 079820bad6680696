/** One request of the caller, from its 402 to its answer. */

import type { Code } from "./decision.js";
import type { Entry, PaymentHeader, Reservation } from "./journal.js";

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
  "payto-varies":
    "Pin the host in `pins` of the policy (`{ host: { maxAmount } }`), or give the guard `ask`.",
  "payment-unresolved": "Ask a node with `guard.resolve(nonce, { node })`.",
};

/** A payment that was not made. `code` says why. */
export class PaymentRefused extends Error {
  override readonly name: string = "PaymentRefused";
  readonly code: Code;

  constructor(code: Code, reason: string, advice: string = ADVICE[code]) {
    super(`Payment refused (${code}): ${reason} ${advice}`);
    this.code = code;
  }
}

/** What the guard knows of the payment that is in the way of another one. */
export interface Unresolved {
  /** Null while an identical call is signing the payment. */
  readonly nonce: string | null;
  /** CAIP-2. */
  readonly network: string | null;
  readonly payer: string | null;
  readonly resource: string;
  /** `paid-unanswered` where the chain shows that it was taken. */
  readonly state: "open" | "paid-unanswered";
  /** Until then (unix seconds) the same call sends the same payment again. */
  readonly retryUntil: number | null;
}

/**
 * An earlier payment of the same purchase was sent and has no answer, so no other one was signed.
 */
export class PaymentUnresolved extends PaymentRefused implements Unresolved {
  override readonly name = "PaymentUnresolved";
  readonly nonce: string | null;
  readonly network: string | null;
  readonly payer: string | null;
  readonly resource: string;
  readonly state: "open" | "paid-unanswered";
  readonly retryUntil: number | null;

  constructor(reason: string, advice: string, unresolved: Unresolved) {
    super("payment-unresolved", reason, advice);
    this.nonce = unresolved.nonce;
    this.network = unresolved.network;
    this.payer = unresolved.payer;
    this.resource = unresolved.resource;
    this.state = unresolved.state;
    this.retryUntil = unresolved.retryUntil;
  }
}

/** What the transport sees of a request, and the client's hooks do not. */
export interface Call {
  /** The URL that answered 402, after redirects; null before one did. */
  url: string | null;
  /** The URLs that redirected there. */
  hops: readonly string[];
  /** Another name by which the 402 may call what was asked. */
  alias: string | null;
  /** SHA-256 of the request that the program made (method, URL, body) in hex. */
  request: string;
  /** Why this 402 cannot be paid whatever it offers. */
  obstacle: string | null;
  /** Sends the request that was answered 402 again, with a payment. */
  send: ((sent: SentPayment) => Promise<unknown>) | null;
  /** Leave to sign and send one payment: a call is paid once. */
  allowed: Allowed | null;
  /** An earlier payment, which is sent again instead of another one. */
  again: Entry | null;
  /** The payment that was sent. */
  sent: SentPayment | null;
  /** Returns or throws what the payment was answered with. */
  answer: (() => unknown) | null;
  refused: PaymentRefused | null;
  /** Lets the next identical call begin. */
  endTurn: (() => void) | null;
}

export function newCall(): Call {
  return {
    url: null,
    hops: [],
    alias: null,
    request: "",
    obstacle: null,
    send: null,
    allowed: null,
    again: null,
    sent: null,
    answer: null,
    refused: null,
    endTurn: null,
  };
}

/** Leave to send one payment. */
export interface Allowed {
  /** The offer itself, frozen: the client must sign this object. */
  readonly requirements: unknown;
  readonly reservation: Reservation;
}

/** A payment in the header that carries it. */
export interface SentPayment extends PaymentHeader {
  readonly nonce: string;
  readonly call: Call;
}
