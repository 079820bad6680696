/**
 * Payments of which nobody knows whether they were taken. While one is valid, the same request to
 * the same resource sends it again instead of a second one, so that it is paid once at most. Where
 * a redirect leads the request to another resource, that one is another to pay.
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
    const key = keyOf(sent.request, sent.resource);
    const isRepeated = this.#byRequest.get(key)?.nonce === sent.nonce;
    if (fate === "unknown") this.#byRequest.set(key, sent);
    else if (!isRepeated || fate !== "refused") this.#byRequest.delete(key);
  }

  /** The payment to send again for a request to a resource at `now` (unix seconds), or null. */
  find(request: string, resource: string, now: number): SentPayment | null {
    for (const [key, sent] of this.#byRequest) {
      if (sent.validBefore <= now + MARGIN_S) this.#byRequest.delete(key);
    }
    return this.#byRequest.get(keyOf(request, resource)) ?? null;
  }
}

function keyOf(request: string, resource: string): string {
  return `${request} ${resource}`;
}

/** Whether a payment for one is a payment for the other. */
export function isSamePayment(one: Terms, other: Terms): boolean {
  const names = ["network", "asset", "amount", "payTo"] as const;
  return names.every((name) => one[name] === other[name]);
}
