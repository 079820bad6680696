/** What the wrappers of transports (`fetch`, axios, MCP) and the guard know of each other. */

import type { Call, SentPayment } from "./call.js";

/** The part of an x402 client that the guard uses; `x402Client` of `@x402/core` has it. */
export interface PayingClient {
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

/** A look at a header of a request or an answer; null where it is not there. */
export type Header = (name: string) => string | null;

/** The guard, as a transport uses it. */
export interface TransportGuard<Client extends PayingClient> {
  readonly client: Client;

  /** The call that this code runs in. */
  readonly call: Call | null;

  /** Runs one request of the caller. Throws PaymentRefused for a refusal. */
  run<T>(work: (call: Call) => Promise<T>): Promise<T>;

  /**
   * The payment to send with a request that has these headers, recorded in the journal; null where
   * they hold none. To be called as the last thing before it is sent.
   * Throws PaymentRefused, and JournalError.
   */
  admit(header: Header): SentPayment | null;

  /**
   * Records a complete answer to a payment. A 304 is one if the request was conditional.
   * Never throws.
   */
  answered(sent: SentPayment, status: number, header: Header, isConditional?: boolean): void;

  /**
   * Records that a payment was sent and no complete answer came; `header` is a look at what came of
   * it. Never throws.
   */
  unanswered(sent: SentPayment, header?: Header): void;
}
