/** What became of a payment, by its answer: x402 version 2 and 1. */

import { decoded, members } from "./json.js";

/**
 * - `settled`: the answer has a receipt that names a transaction.
 * - `refused`: the seller answered 402 again.
 * - `answered`: the seller answered, without a receipt.
 * - `unknown`: no answer came, or the seller failed or wants it later: only the chain can tell
 *   whether it was taken.
 * - `taken`, `not-taken`: the owner of the wallet said so.
 */
export type Fate = "settled" | "refused" | "answered" | "unknown" | "taken" | "not-taken";

/** The seller wants the same request later: in time, not so early, not so often. */
const LATER = [408, 425, 429];
const RECEIPTS = ["payment-response", "x-payment-response"];

/** What an answer says of the payment that it answers. */
export function fateOf(
  status: number,
  header: (name: string) => string | null,
): { readonly fate: Fate; readonly transaction: string | null } {
  const receipt = RECEIPTS.map(header).find((text) => text !== null);
  const { success, transaction } = members(decoded(receipt ?? ""));
  if (success === true && typeof transaction === "string" && transaction !== "") {
    return { fate: "settled", transaction };
  }
  if (status === 402) return { fate: "refused", transaction: null };
  const isOpen = status >= 500 || LATER.includes(status);
  return { fate: isOpen ? "unknown" : "answered", transaction: null };
}
