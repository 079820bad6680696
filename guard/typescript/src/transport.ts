/** The interface between the wrappers of transports (`fetch`, axios, MCP) and the guard. */

import type { Call, SentPayment } from "./call.js";
import type { Event } from "./payment-state.js";

/** The part of an x402 client that the guard uses; `x402Client` of `@x402/core` has it. */
export interface PayingClient {
  createPaymentPayload(paymentRequired: any): Promise<any>;
  registerPolicy(policy: (version: number, accepts: any[]) => any[]): unknown;
  onBeforePaymentCreation(
    hook: (context: {
      readonly paymentRequired: unknown;
      readonly selectedRequirements: unknown;
    }) => Promise<void | { abort: true; reason: string }>,
  ): unknown;
  onAfterPaymentCreation(
    hook: (context: { readonly paymentPayload: unknown }) => Promise<void>,
  ): unknown;
}

export type Fetch = typeof globalThis.fetch;

/** A look at a header of a request or an answer; null if it is missing. */
export type Header = (name: string) => string | null;

/** A complete answer to a payment. */
export interface PaidAnswer {
  readonly status: number;
  readonly header: Header;
  readonly body: Uint8Array;
}

/** Whether a complete 2xx answers a purchase; only `true` does. */
export type IsAnswer = (answer: PaidAnswer) => boolean;

/** The guard, as a transport uses it. */
export interface TransportGuard<Client extends PayingClient> {
  readonly client: Client;

  /** The call that this code runs in. */
  readonly call: Call | null;

  /** The owner's function; null: every complete 2xx is an answer. */
  readonly isAnswer: IsAnswer | null;

  /** Runs one request of the caller. Throws PaymentRefused for a refusal. */
  run<T>(work: (call: Call) => Promise<T>): Promise<T>;

  /**
   * The payment to send with a request that has these headers, recorded as in flight; null if they
   * contain none. To be called as the last thing before it is sent.
   * Throws PaymentRefused, and JournalError.
   */
  admit(header: Header): SentPayment | null;

  /**
   * How to request the answer to an earlier payment of the call's purchase, with the value of the
   * 402's header; null if that is not possible or not allowed. Never throws.
   */
  signIn(call: Call, required: string | null): Promise<SentPayment | null>;

  /** Records the event that an answer is for a payment. Never throws. */
  conclude(sent: SentPayment, event: Event, status?: number | null, header?: Header): void;

  /** Remembers which payment a response or an error belongs to. */
  name(subject: unknown, sent: SentPayment): void;
}

/** Which event an answer of a good status is to its payment; `body` null: it was cut. */
export function eventOf(
  isAnswer: IsAnswer | null,
  status: number,
  header: Header,
  body: Uint8Array | null,
): Event {
  if (body === null) return "cut";
  try {
    return isAnswer === null || isAnswer({ status, header, body }) === true ? "answer" : "error-answer";
  } catch (error) {
    // The answer was paid for, and is returned; the payment stays open.
    process.emitWarning(`isAnswer failed: ${String(error)}`, "TollgaugeGuard");
    return "error-answer";
  }
}
