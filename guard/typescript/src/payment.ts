/** A signed payment, as it is about to be sent: what it pays, and whether that was allowed. */

import { lowerAddress } from "./address.js";
import { decoded, members } from "./json.js";
import { readOffer, type Terms } from "./offer.js";
import { parseAmount, V1_NETWORKS } from "./units.js";

/** An EIP-3009 authorization, and what the payment says of its token. Hex is in lower case. */
export interface SignedPayment {
  readonly payer: string;
  readonly payTo: string;
  /** Atomic units. */
  readonly amount: bigint;
  /** Unix seconds. */
  readonly validBefore: number;
  /** 32 bytes; with the payer it names the authorization on the chain. */
  readonly nonce: string;
  /** CAIP-2. */
  readonly network: string;
  /** Null in x402 version 1, which does not name it. */
  readonly asset: string | null;
}

/** The headers of a payment, of x402 version 2 and 1, in lower case. */
export const PAYMENT_HEADERS = ["payment-signature", "x-payment"] as const;

/** How much longer than the offer's timeout an authorization may be valid. */
const CLOCK_SLACK_S = 5;
const NONCE = /^0x[0-9a-f]{64}$/;
const SECONDS = /^[0-9]{1,12}$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const HEADER_MAX = 65_536;

/** The payment in the value of a payment header, or null where it cannot be read. */
export function paymentInHeader(value: string): SignedPayment | null {
  return value.length <= HEADER_MAX && BASE64.test(value) ? readPayment(decoded(value)) : null;
}

/**
 * The payment in an x402 payload, or null unless it is one EIP-3009 authorization and nothing
 * else, and `accepted` says the same as what was signed.
 */
export function readPayment(payload: unknown): SignedPayment | null {
  const { x402Version: version, accepted, payload: inner, ...v1 } = members(payload);
  const { authorization, signature, ...others } = members(inner);
  if (typeof signature !== "string" || Object.keys(others).length > 0) return null;
  const { from, to, value, validBefore, nonce: rawNonce } = members(authorization);
  const payer = lowerAddress(from);
  const payTo = lowerAddress(to);
  const amount = parseAmount(value);
  const nonce = String(rawNonce).toLowerCase();
  if (payer === null || payTo === null || amount === null || !NONCE.test(nonce)) return null;
  if (typeof validBefore !== "string" || !SECONDS.test(validBefore)) return null;
  const signed = { payer, payTo, amount, validBefore: Number(validBefore), nonce };
  if (version === 1) {
    const network = V1_NETWORKS.get(String(v1["network"]));
    const isExact = v1["scheme"] === "exact" && network !== undefined;
    return isExact ? { ...signed, network, asset: null } : null;
  }
  const offer = readOffer(accepted, null);
  const { network, asset } = offer;
  const saysTheSame = lowerAddress(offer.payTo) === payTo && parseAmount(offer.amount) === amount;
  if (version !== 2 || offer.scheme !== "exact" || !saysTheSame) return null;
  if (typeof network !== "string" || typeof asset !== "string") return null;
  return { ...signed, network, asset: asset.toLowerCase() };
}

/** How a payment differs from the terms that were allowed, or null. `now` is unix seconds. */
export function difference(payment: SignedPayment, terms: Terms, now: number): string | null {
  if (payment.payTo !== terms.payTo) return `It pays ${payment.payTo}, not ${terms.payTo}.`;
  if (payment.amount !== terms.amount) {
    return `It pays ${payment.amount} atomic units, not ${terms.amount}.`;
  }
  if (payment.network !== terms.network) {
    return `It pays on ${payment.network}, not on ${terms.network}.`;
  }
  if (payment.asset !== null && payment.asset !== terms.asset) {
    return `It pays in ${payment.asset}, not in ${terms.asset}.`;
  }
  if (payment.validBefore <= now) return "It has expired.";
  if (payment.validBefore > now + terms.timeout + CLOCK_SLACK_S) {
    return `It is valid for longer than ${terms.timeout} seconds.`;
  }
  return null;
}
