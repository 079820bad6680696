/**
 * Payments of which nobody knows whether they were taken. While one is valid, the same request
 * sends it again instead of a second one, so that it is paid once at most.
 */

import type { SentPayment } from "./call.js";
import type { Terms } from "./offer.js";
import type { Fate } from "./settlement.js";

/** Facilitators refuse what expires within the next seconds. */
const MARGIN_S = 6;

export class UnclearPayments {
  readonly #byRequest = new Map<string, SentPayment>();

  /**
   * Takes note of an answer. A 402 to a payment that was sent before may mean that it was taken
   * then, so that one is not forgotten.
   */
  answered(sent: SentPayment, fate: Fate): void {
    const isRepeated = this.#byRequest.get(sent.request)?.nonce === sent.nonce;
    if (fate === "unknown") this.#byRequest.set(sent.request, sent);
    else if (!isRepeated || fate !== "refused") this.#byRequest.delete(sent.request);
  }

  /** The payment to send again for a request at `now` (unix seconds), or null. */
  find(request: string, now: number): SentPayment | null {
    for (const [key, sent] of this.#byRequest) {
      if (sent.validBefore <= now + MARGIN_S) this.#byRequest.delete(key);
    }
    return this.#byRequest.get(request) ?? null;
  }
}

/** Whether a payment for one is a payment for the other. */
export function isSamePayment(one: Terms, other: Terms): boolean {
  const names = ["network", "asset", "amount", "payTo"] as const;
  return names.every((name) => one[name] === other[name]);
}
