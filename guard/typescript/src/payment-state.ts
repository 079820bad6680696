/**
 * Payments: their states, the transitions between them, and the next step of a call.
 *
 *     reserved -> signed -> in-flight -> delivered | open
 *     open -> in-flight (sent again) | paid-unanswered | dead | lapsed | written-off
 *
 * While a payment of a purchase is unfinished, no other payment of that purchase is signed. The
 * table is guard/cases/payments.json, which every language runs.
 */

import { decoded, members } from "./json.js";

/** Facilitators refuse an authorization with less validity left. */
export const SETTLE_MARGIN_S = 6;
export const PURCHASE_WINDOW_S = 600;

export type State =
  /** Being signed. */
  | "reserved"
  /** Signed and recorded. */
  | "signed"
  /** Sent. */
  | "in-flight"
  /** Sent, without a good answer: it may still be taken, or was. */
  | "open"
  | "delivered"
  /** The chain shows it used. */
  | "paid-unanswered"
  /** It cannot be used any more. */
  | "dead"
  /** The purchase ended without an answer. */
  | "lapsed"
  /** By the owner's decision. */
  | "written-off";

export type Event =
  | "signed"
  | "not-signed"
  | "send"
  | "not-sent"
  | "process-died"
  | "answer"
  | "cut"
  | "no-answer"
  | "error-answer"
  | "chain-used"
  | "chain-dead"
  | "chain-unused"
  | "chain-unknown"
  | "window-over"
  | "pay-again"
  | "write-off";

/** The chain's evidence about a payment. */
export type Evidence = "used" | "dead" | "unused" | "unknown";

/** The next step of a call with an unfinished payment of its purchase. */
export type Step =
  | "sign"
  | "wait"
  | "died"
  | "resend"
  | "read-chain"
  | "lapse"
  | "pay-again"
  | "ask-owner"
  | "unresolved";

/** Whether a purchase whose payment got no answer may be paid again. */
export type PayAgain = "never" | "ask" | "auto-up-to";

/** The state after an event; null: the row is deleted. */
export interface Transition {
  readonly to: State | null;
  readonly release?: boolean;
  readonly settle?: boolean;
  readonly dropPayload?: boolean;
  readonly keepHint?: boolean;
}

const TO_OPEN: Transition = { to: "open" };
const TO_DELIVERED: Transition = { to: "delivered", dropPayload: true };
const TO_DEAD: Transition = { to: "dead", release: true, dropPayload: true };
const DELETED: Transition = { to: null, release: true };

export const TRANSITIONS: Readonly<Record<State, Partial<Record<Event, Transition>>>> = {
  reserved: { signed: { to: "signed" }, "not-signed": DELETED, "process-died": DELETED },
  signed: {
    send: { to: "in-flight" },
    "not-sent": TO_DEAD,
    // Without `durable`, a power failure may lose the transition to in-flight.
    "process-died": TO_OPEN,
  },
  "in-flight": {
    answer: TO_DELIVERED,
    cut: TO_OPEN,
    "no-answer": TO_OPEN,
    "process-died": TO_OPEN,
    "error-answer": { to: "open", keepHint: true },
    "not-sent": TO_OPEN,
  },
  open: {
    send: { to: "in-flight" },
    answer: TO_DELIVERED,
    "error-answer": { to: "open", keepHint: true },
    "chain-used": { to: "paid-unanswered", settle: true, dropPayload: true },
    "chain-dead": TO_DEAD,
    "chain-unused": TO_OPEN,
    "chain-unknown": TO_OPEN,
    "window-over": { to: "lapsed", dropPayload: true },
    "pay-again": { to: "written-off", dropPayload: true },
    "write-off": { to: "written-off", dropPayload: true },
  },
  delivered: { "chain-used": { to: "delivered", settle: true } },
  "paid-unanswered": {
    answer: { to: "delivered" },
    "chain-used": { to: "paid-unanswered", settle: true },
    // A reorganisation removed the block that showed it used.
    "chain-unused": TO_OPEN,
    "chain-dead": TO_DEAD,
    "chain-unknown": { to: "paid-unanswered" },
    "window-over": { to: "lapsed" },
    "pay-again": { to: "written-off" },
    "write-off": { to: "written-off" },
  },
  lapsed: { answer: { to: "delivered" } },
  "written-off": { answer: { to: "delivered" } },
  dead: {},
};

/** The state of the unfinished payment of a purchase, as a call sees it. */
export interface PurchaseSituation {
  /** Null: there is no unfinished payment. */
  readonly state: State | null;
  /** The process that is paying is running. */
  readonly isBusy: boolean;
  readonly isQueueOver: boolean;
  /** Same URL, payload kept, and the offer is in the new 402. */
  readonly mayResend: boolean;
  readonly secondsLeft: number;
  /** Null until the chain was read during this call. */
  readonly evidence: Evidence | null;
  readonly isWindowOver: boolean;
  readonly payAgain: PayAgain;
  readonly payAgainMax: bigint;
  readonly exposure: bigint;
  readonly hasApprover: boolean;
}

/** The next step of a call; only `sign` lets it sign another authorization. */
export function nextStep(now: PurchaseSituation): Step {
  const isBeingPaid = ["reserved", "signed", "in-flight"].includes(now.state ?? "");
  if (isBeingPaid) {
    if (!now.isBusy) return "died";
    return now.isQueueOver ? "unresolved" : "wait";
  }
  if (now.state !== "open" && now.state !== "paid-unanswered") return "sign";
  const isValid = now.secondsLeft > SETTLE_MARGIN_S;
  if (now.evidence === null) {
    return now.state === "open" && now.mayResend && isValid ? "resend" : "read-chain";
  }
  if (now.evidence === "dead") return "sign";
  if (now.isWindowOver) return "lapse";
  // It can still be sent again from its own URL.
  if (isValid && now.evidence !== "used") return "unresolved";
  if (now.payAgain === "auto-up-to" && now.exposure <= now.payAgainMax) return "pay-again";
  return now.payAgain !== "never" && now.hasApprover ? "ask-owner" : "unresolved";
}

/** One payment of the journal. EVM values are lower-case hex, times unix seconds. */
export interface Payment {
  /** Row ID. */
  readonly id: number;
  /** Names the payment to callers and commands. */
  readonly handle: string;
  readonly account: string;
  readonly purchase: string;
  readonly session: string;
  readonly owner: string;
  readonly state: State;
  readonly at: number;
  readonly changedAt: number;
  readonly host: string;
  readonly resource: string;
  readonly urlDigest: string;
  readonly scheme: string;
  readonly method: string;
  /** CAIP-2. */
  readonly network: string;
  readonly asset: string;
  readonly payTo: string;
  /** Atomic units as a decimal text. */
  readonly amount: string;
  /** Micro-dollars that count as spent; 0 once dead. */
  readonly exposure: bigint;
  readonly payer: string;
  /** Null while it is being signed. */
  readonly nonce: string | null;
  readonly validBefore: number;
  readonly validHeight: number | null;
  readonly evidence: string | null;
  readonly payload: string | null;
  readonly paymentId: string | null;
  /** Status of the seller's last answer; it proves nothing. */
  readonly status: number | null;
  /** Transaction that an answer named; it proves nothing. */
  readonly settlement: string | null;
  readonly foundAt: number | null;
  readonly replaces: number | null;
}

/** When the window of a digest purchase ends (unix seconds). */
export function endsAt({ validBefore, foundAt }: Pick<Payment, "validBefore" | "foundAt">): number {
  return Math.max(validBefore, foundAt ?? 0) + PURCHASE_WINDOW_S;
}

/** Whether a purchase has ended without the chain or the owner; one with a given key never does. */
export function isWindowOver(
  payment: Pick<Payment, "validBefore" | "foundAt" | "purchase">,
  now: number,
): boolean {
  return !payment.purchase.startsWith("key:") && now >= endsAt(payment);
}

/** Until when the same payment may be sent again (unix seconds). */
export function retryUntil({ validBefore }: Pick<Payment, "validBefore">): number {
  return validBefore - SETTLE_MARGIN_S;
}

const RECEIPT_HEADERS = ["payment-response", "x-payment-response"];

/** The transaction that the receipt of an answer names: a hint that proves nothing. */
export function receiptTransaction(header: (name: string) => string | null): string | null {
  const receipt = RECEIPT_HEADERS.map(header).find((text) => text !== null);
  const { transaction } = members(decoded(receipt ?? ""));
  return typeof transaction === "string" && transaction !== "" ? transaction : null;
}

/** Whether a complete answer with a status may answer a purchase: a 2xx, or a 304 to a condition. */
export function isGoodStatus(status: number, isConditional = false): boolean {
  return (status >= 200 && status < 300) || (status === 304 && isConditional);
}
