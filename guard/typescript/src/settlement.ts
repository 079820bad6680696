/** What the answer to a payment means for its purchase: x402 version 2 and 1. */

import { decoded, members } from "./json.js";

/**
 * The state of a payment that was sent; null while its answer is not complete.
 *
 * - `settled`: a complete 2xx with a receipt that names a transaction.
 * - `answered`: a complete 2xx without one.
 * - `open`: anything else, or no answer: it may still be taken, or was.
 * - `paid-unanswered`: the chain shows that it was taken.
 * - `dead`: the chain shows that it was not taken and no longer can be.
 * - `lapsed`: its purchase ended without an answer, which counts as a loss.
 * - `written-off`: its owner agreed to pay for the purchase again.
 */
export type Fate = (typeof FATES)[number];

const FATES = [
  "settled",
  "answered",
  "open",
  "paid-unanswered",
  "dead",
  "lapsed",
  "written-off",
] as const;

export function isFate(value: unknown): value is Fate {
  return FATES.some((fate) => fate === value);
}

const RECEIPTS = ["payment-response", "x-payment-response"];

/**
 * What a complete answer means. Only a 2xx answers a purchase, and a 304 if the request was
 * conditional. The transaction of any other answer is a hint and proves nothing.
 */
export function fateOf(
  status: number,
  header: (name: string) => string | null,
  isConditional = false,
): { readonly fate: Fate; readonly transaction: string | null } {
  const receipt = RECEIPTS.map(header).find((text) => text !== null);
  const { success, transaction: named } = members(decoded(receipt ?? ""));
  const transaction = typeof named === "string" && named !== "" ? named : null;
  if (!isAnswer(status, isConditional)) return { fate: "open", transaction };
  return { fate: success === true && transaction !== null ? "settled" : "answered", transaction };
}

/** Whether a complete answer with a status answers a purchase. */
export function isAnswer(status: number, isConditional = false): boolean {
  return (status >= 200 && status < 300) || (status === 304 && isConditional);
}
