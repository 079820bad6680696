/**
 * Before a payment is signed: deal with the earlier payment of the same purchase.
 *
 * `makeWay` is the only way to a second authorization: the chain proves the first one dead, the
 * purchase has ended, or the owner decided. The steps are those of guard/cases/payments.json.
 */

import { PaymentRefused, PaymentUnresolved } from "./call.js";
import type { Ask, Decision } from "./decision.js";
import type { Changes, Journal, Purchase } from "./journal.js";
import { isAlive, JournalError } from "./journal-file.js";
import type { NodeReader, Reading } from "./nodes.js";
import type { Offer } from "./offer.js";
import {
  endsAt,
  type Event,
  type Evidence,
  isWindowOver,
  nextStep,
  type Payment,
  retryUntil,
} from "./payment-state.js";
import type { Policy } from "./policy.js";
import { dollars, findAsset, microUsd } from "./units.js";

/** Waiting time for an identical call. */
const QUEUE_MS = 30_000;
const POLL_MS = 50;

/** What `makeWay` needs from the guard. */
export interface Payer {
  readonly journal: Journal;
  readonly policy: Policy;
  readonly nodes: NodeReader;
  readonly hasApprover: boolean;
  /** Unix seconds. */
  now(): number;
  /** Applies an event to a payment that still has the state that was read. */
  change(payment: Payment, event: Event, changes?: Changes): boolean;
  /** Decides about an offer that an open payment pays. */
  judgeAgain(offer: Offer, payment: Payment): Promise<Decision>;
  /** Whether the owner agrees to pay a purchase again. */
  askAgain(payment: Payment): Promise<boolean>;
}

/**
 * Returns a payment that is in flight again and must be sent, or null if a payment may be signed.
 * `readOffers` returns the entries of the new 402; it is called if there is an earlier payment.
 * Throws PaymentRefused if that payment is unresolved, or must not be sent again.
 */
export async function makeWay(
  guard: Payer,
  purchase: Purchase,
  readOffers: () => readonly Offer[],
): Promise<Payment | null> {
  const deadline = performance.now() + QUEUE_MS;
  const readings = new Map<number, Evidence>();
  for (;;) {
    const payment = guard.journal.unfinished(purchase);
    if (payment === null) return null;
    const offer = offerAgain(payment, purchase, readOffers());
    const now = guard.now();
    const step = nextStep({
      state: payment.state,
      // A process that hangs does not hold the purchase for longer than its window.
      isBusy: isAlive(payment.owner) && now < endsAt(payment),
      isQueueOver: performance.now() >= deadline,
      mayResend: offer !== null,
      secondsLeft: payment.validBefore - now,
      evidence: readings.get(payment.id) ?? null,
      isWindowOver: isWindowOver(payment, now),
      payAgain: guard.policy.payAgain,
      payAgainMax: guard.policy.payAgainMax,
      exposure: payment.exposure,
      hasApprover: guard.hasApprover,
    });
    if (step === "wait") await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    else if (step === "resend" && offer !== null) {
      const decision = await guard.judgeAgain(offer, payment);
      if (decision.decision === "refuse") throw new PaymentRefused(decision);
      if (decision.decision === "allow" && guard.change(payment, "send")) return payment;
    } else if (step === "read-chain") {
      const reading = await guard.nodes.read(payment);
      readings.set(payment.id, reading.evidence);
      applyReading(guard, payment, reading);
    } else if (step === "died") guard.change(payment, "process-died");
    else if (step === "lapse") guard.change(payment, "window-over");
    else if (step === "pay-again") guard.change(payment, "pay-again");
    else if (step === "ask-owner" && (await guard.askAgain(payment))) {
      guard.change(payment, "pay-again");
    } else {
      // A payment that is being signed by another call has nothing to resolve yet.
      throw unresolved(purchase.resource, payment.nonce === null ? null : payment, guard.now());
    }
  }
}

/**
 * Reads a payment from the owner's nodes, or from `node`, and records the result. If it is still
 * unresolved after that, `close` records the owner's decision. Throws JournalError.
 */
export async function resolvePayment(
  guard: Payer,
  name: string,
  { node, close }: { readonly node?: string; readonly close?: "pay-again" | "write-off" } = {},
): Promise<Payment> {
  const found = guard.journal.find(name);
  if (found === null) throw new JournalError(`The journal has no payment ${name}.`);
  const latest = (): Payment => guard.journal.payment(found.id) ?? found;
  if (found.state === "signed" || found.state === "in-flight") {
    if (isAlive(found.owner) && guard.now() < endsAt(found)) {
      const why = `A call is waiting for the answer to the payment ${name}.`;
      throw new JournalError(`${why} Nothing was changed.`);
    }
    guard.change(found, "process-died");
  }
  let payment = latest();
  const isCeiling = payment.state === "delivered" && payment.scheme === "upto";
  if (payment.state === "open" || payment.state === "paid-unanswered" || isCeiling) {
    applyReading(guard, payment, await guard.nodes.read(payment, node));
    payment = latest();
  }
  const isUnresolved = payment.state === "open" || payment.state === "paid-unanswered";
  if (close !== undefined && isUnresolved) guard.change(payment, close);
  return latest();
}

/** The refusal of a purchase whose earlier payment has no answer; null: it is being signed. */
export function unresolved(
  resource: string,
  payment: Payment | null,
  now: number,
): PaymentUnresolved {
  if (payment === null) {
    const remedy = "Call again later. Nothing was paid for this call.";
    return new PaymentUnresolved(`Another call is paying for ${resource}.`, remedy, null);
  }
  const money = `${dollars(payment.exposure)} to ${payment.payTo} on ${payment.network}`;
  const handle = `"${payment.handle}"`;
  if (payment.state === "paid-unanswered") {
    const reason = `${money} was taken for ${payment.resource} and not answered.`;
    const again = `\`guard.payAgain(${handle})\` lets the guard pay again.`;
    const remedy = `No other payment was signed. Ask the seller for the answer. ${again}`;
    return new PaymentUnresolved(reason, remedy, payment);
  }
  const until = timeText(payment.validBefore);
  const reason = `${money} for ${payment.resource} has no answer and may be taken until ${until}.`;
  const isSendable = now < retryUntil(payment);
  const again = `The same call sends the same payment again until ${timeText(retryUntil(payment))}. `;
  const read = `\`guard.resolve(${handle})\` reads the chain.`;
  const remedy = `No other payment was signed. ${isSendable ? again : ""}${read}`;
  return new PaymentUnresolved(reason, remedy, payment);
}

/** The question whether a purchase whose payment got no answer may be paid again. */
export function askToPayAgain(payment: Payment): Ask {
  const { scheme, network, asset, payTo, exposure } = payment;
  const amount = BigInt(payment.amount);
  const terms = {
    ...{ scheme, network, asset, payTo, exposure, amount, exposed: amount, timeout: 0 },
    ...{ domainName: "", domainVersion: "", facilitator: null, isSlow: false },
    method: payment.method as Ask["terms"]["method"],
  };
  const reason = `A payment to ${payment.host} got no answer.`;
  return { decision: "ask", code: "pay-again", reason, terms };
}

/** The warning about a payment that counts as a loss. */
export function lossText({ exposure, payTo, resource, handle }: Payment): string {
  const money = `${dollars(exposure)} to ${payTo} for ${resource}`;
  return `A payment of ${money} was never answered and counts as a loss (${handle}).`;
}

function applyReading(guard: Payer, payment: Payment, { evidence, settled }: Reading): void {
  const asset = findAsset(payment.network, payment.asset, guard.policy.assets);
  const isKnown = settled !== null && asset !== null;
  // Not a share of the exposure, which an earlier reading may have reduced.
  const moved = isKnown ? { settled: microUsd(asset, settled) } : {};
  guard.change(payment, `chain-${evidence}`, moved);
}

/** The offer of the new 402 that an open payment pays, if it may be sent again. */
function offerAgain(
  payment: Payment,
  purchase: Purchase,
  offers: readonly Offer[],
): Offer | null {
  const isImported = payment.urlDigest === "";
  const isSameUrl = isImported
    ? payment.resource === purchase.resource
    : payment.urlDigest === purchase.urlDigest;
  if (payment.payload === null || !isSameUrl) return null;
  const { scheme, network, asset, payTo, amount } = payment;
  const wanted = JSON.stringify([scheme, network, asset, payTo, amount]);
  return offers.find((offer) => priceOf(offer) === wanted) ?? null;
}

function priceOf({ scheme, network, asset, payTo, amount }: Offer): string {
  const [token, payee] = [asset, payTo].map(String).map((one) =>
    one.startsWith("0x") ? one.toLowerCase() : one,
  );
  return JSON.stringify([String(scheme), String(network), token, payee, String(amount)]);
}

function timeText(at: number): string {
  return new Date(at * 1000).toISOString().replace("T", " ").replace(".000Z", " UTC");
}
