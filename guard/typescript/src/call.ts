/** One request of the caller, from its 402 to its answer. */

import type { Code } from "./codes.js";
import type { Refuse, Spent } from "./decision.js";
import type { Bundle } from "./bundle.js";
import type { Purchase } from "./journal.js";
import type { JournalError } from "./journal-file.js";
import type { KnownRequest } from "./lookup.js";
import type { Terms } from "./offer.js";
import { type Payment, retryUntil } from "./payment-state.js";

/** The owner's options for one call. The values only tighten the policy. */
export interface CallOptions {
  /** The caller's key of the purchase, for example an order number. It never ends. */
  readonly purchase?: string;
  /** Limit in micro-dollars. */
  readonly maxAmount?: bigint;
  /** The only payTo that is accepted. */
  readonly expectPayTo?: string;
}

/** A payment that was not made: nothing was signed, or the signed payment did not leave. */
export class PaymentRefused extends Error {
  override readonly name: string = "PaymentRefused";
  /** The rule that decided. */
  readonly code: Code;
  readonly reason: string;
  /** How the owner can allow the payment. */
  readonly remedy: string;

  constructor({ code, reason, remedy }: Pick<Refuse, "code" | "reason" | "remedy">) {
    super(`Payment refused (${code}): ${reason} ${remedy}`);
    this.code = code;
    this.reason = reason;
    this.remedy = remedy;
  }
}

/** An earlier payment of the same purchase has no answer, so no other one was signed. */
export class PaymentUnresolved extends PaymentRefused {
  override readonly name = "PaymentUnresolved";
  /** Names the payment for `guard.resolve`; null while another call is signing it. */
  readonly handle: string | null;
  readonly nonce: string | null;
  /** CAIP-2. */
  readonly network: string | null;
  readonly payer: string | null;
  readonly resource: string | null;
  /** `paid-unanswered` if the chain shows that it was taken. */
  readonly state: Payment["state"];
  /** Until then (unix seconds) the same call sends the same payment again. */
  readonly retryUntil: number | null;

  constructor(reason: string, remedy: string, payment: Payment | null) {
    super({ code: "payment-unresolved", reason, remedy });
    this.handle = payment?.handle ?? null;
    this.nonce = payment?.nonce ?? null;
    this.network = payment?.network ?? null;
    this.payer = payment?.payer ?? null;
    this.resource = payment?.resource ?? null;
    this.state = payment?.state ?? "reserved";
    this.retryUntil = payment === null ? null : retryUntil(payment);
  }
}

/** The payment of a call, from its reservation on. */
export interface Attempt {
  /** Row ID. */
  readonly id: number;
  readonly handle: string;
  readonly payer: string;
  readonly terms: Terms;
  /** The offer itself, frozen: the client must sign this object. */
  readonly requirements: unknown;
  /** The authorization was compared with the terms after it was signed. */
  isChecked: boolean;
}

/** A payment that may leave, as it is recorded. */
export interface Sealed {
  readonly id: number;
  readonly handle: string;
  /** Name and value of its header. */
  readonly header: string;
  readonly value: string;
  /** It was signed for this call; otherwise it was signed earlier, and is in flight again. */
  readonly isNew: boolean;
}

/** A payment that left. */
export interface SentPayment extends Sealed {
  readonly call: Call;
}

/** The part of a request that the transport sees and the client's hooks do not. */
export interface Call {
  readonly options: CallOptions;
  /** The URL that answered 402, after redirects; null before one did. */
  url: string | null;
  /** The URLs that redirected there. */
  hops: readonly string[];
  /** Another name that the 402 may use for the requested resource. */
  alias: string | null;
  /** The name of the called tool of an MCP server. */
  tool: string | null;
  /** The key of the request that the program made. */
  key: string | null;
  /** Why this 402 cannot be paid whatever it offers. */
  obstacle: string | null;
  /** The 402 that is being paid. */
  required: unknown;
  /** The terms of its entries that a signed offer of the seller contradicts. */
  contradicted: ReadonlySet<string>;
  bundle: Bundle | null;
  /** The bundle's records for the request, once they were looked up. */
  known: KnownRequest | null;
  purchase: Purchase | null;
  /** The sums that the last decision read, and where they count. */
  spent: { readonly key: string; readonly sums: Spent } | null;
  /** Refusals of the offers that were removed in the selection, and whether any was left. */
  dropped: Refuse[];
  hasOffers: boolean;
  /** An unfinished payment of the same purchase was found while reserving. */
  isBehind: boolean;
  attempt: Attempt | null;
  sealed: Sealed | null;
  /** The payment that left: a call is paid once. */
  sent: SentPayment | null;
  /** Returns or throws the answer to the payment. */
  answer: (() => unknown) | null;
  /** Why nothing was signed or sent. */
  refused: PaymentRefused | JournalError | null;
}

export function newCall(options: CallOptions): Call {
  return {
    options,
    url: null,
    hops: [],
    alias: null,
    tool: null,
    key: null,
    obstacle: null,
    required: null,
    contradicted: new Set(),
    bundle: null,
    known: null,
    purchase: null,
    spent: null,
    dropped: [],
    hasOffers: false,
    isBehind: false,
    attempt: null,
    sealed: null,
    sent: null,
    answer: null,
    refused: null,
  };
}
