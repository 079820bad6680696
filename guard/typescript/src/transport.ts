/** What the wrappers of transports (`fetch`, axios, MCP) and the guard know about each other. */

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

/** A look at a header of a request or an answer; null if it is missing. */
export type Header = (name: string) => string | null;

/** The answer to a payment, as `isAnswer` sees it. */
export interface PaidAnswer {
  readonly status: number;
  readonly header: Header;
  readonly body: Uint8Array;
}

/** The guard, as a transport uses it. */
export interface TransportGuard<Client extends PayingClient> {
  readonly client: Client;

  /** The call that this code runs in. */
  readonly call: Call | null;

  /** Runs one request of the caller. Throws PaymentRefused for a refusal. */
  run<T>(work: (call: Call) => Promise<T>): Promise<T>;

  /**
   * The payment to send with a request that has these headers, recorded as in flight; null if they
   * contain none. To be called as the last thing before it is sent.
   * Throws PaymentRefused, and JournalError.
   */
  admit(header: Header): SentPayment | null;

  /** Records what an answer is to a payment. Never throws. */
  conclude(sent: SentPayment, event: Event, status?: number | null, header?: Header): void;

  /** Remembers which payment a response or an error belongs to. */
  name(subject: unknown, sent: SentPayment): void;
}
