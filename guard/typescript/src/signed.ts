/** Signed payments: reads the authorization in a payload and compares it with the allowed terms. */

import { lowerAddress } from "./address.js";
import { type Authorization, type Common, isSignature } from "./authorization.js";
import { decoded, members } from "./json.js";
import { PAYMENT_ID, type Terms } from "./offer.js";
import { readChannel } from "./signed-channel.js";
import { readSolana } from "./signed-solana.js";
import { parseAmount, V1_NETWORKS } from "./units.js";

/** The headers of a payment, of x402 version 2 and 1, in lower case. */
export const PAYMENT_HEADERS = ["payment-signature", "x-payment"] as const;
/** An authorization may outlive the offer's timeout by this. */
export const CLOCK_SLACK_S = 5;

/** The only contracts that may spend by Permit2: they pay the signed recipient. */
const PROXIES: Readonly<Record<string, string>> = {
  exact: "0x402085c248eea27d92e8b30b2c58ed07f9e20001",
  upto: "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002",
};
const NONCE = /^0x[0-9a-fA-F]{64}$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const HEADER_MAX = 65_536;
const PLAIN = { evidence: null, exposed: null };

/** The x402 payload in the value of a payment header, or null if it cannot be read. */
export function payloadInHeader(value: string): unknown {
  return value.length <= HEADER_MAX && BASE64.test(value) ? decoded(value) : null;
}

/** The name of the header that carries a payload. */
export function headerOf(payload: unknown): string {
  return members(payload)["x402Version"] === 1 ? "x-payment" : "payment-signature";
}

/** The authorization in a payload, or null if any part cannot be read. */
export function readSigned(payload: unknown): Authorization | null {
  const common = readCommon(payload);
  const inner = members(members(payload)["payload"]);
  if (common === null) return null;
  if (common.network.startsWith("solana:")) return readSolana(common, inner);
  if ("voucher" in inner) return readChannel(common, inner);
  if (!isSignature(inner["signature"])) return null;
  return "permit2Authorization" in inner ? readPermit2(common, inner) : readTransfer(common, inner);
}

/** The ID of the extension payment-identifier in a payload, or null. */
export function paymentIdOf(payload: unknown): string | null {
  const extension = members(members(members(payload)["extensions"])[PAYMENT_ID]);
  const { id } = members(extension["info"]);
  return typeof id === "string" ? id : null;
}

/** The name of the first field that differs from the allowed terms, or null if all agree. */
export function difference(signed: Authorization, terms: Terms, now: number): string | null {
  const latest = now + terms.timeout + CLOCK_SLACK_S;
  // A Solana transaction ends with its blockhash, a voucher without a deposit never.
  const isTimed = ["eip3009", "permit2"].includes(signed.method) || signed.validBefore > 0;
  const checks = {
    scheme: signed.scheme === terms.scheme,
    method: signed.method === terms.method,
    network: signed.network === terms.network,
    asset: signed.asset === null || signed.asset === terms.asset,
    payTo: signed.payTo === terms.payTo,
    value: signed.value === terms.amount,
    facilitator: terms.scheme !== "upto" || signed.facilitator === terms.facilitator,
    validity: !isTimed || (now < signed.validBefore && signed.validBefore <= latest),
    deposit: signed.exposed === null || signed.exposed <= terms.exposed,
  };
  return Object.entries(checks).find(([, isSame]) => !isSame)?.[0] ?? null;
}

function readCommon(payload: unknown): Common | null {
  const fields = members(payload);
  if (fields["x402Version"] === 1) {
    const network = V1_NETWORKS.get(String(fields["network"]));
    const { scheme } = fields;
    if (network === undefined || typeof scheme !== "string") return null;
    return { scheme, network, asset: null, accepted: null };
  }
  const accepted = members(fields["accepted"]);
  const { scheme, network, asset } = accepted;
  if (fields["x402Version"] !== 2 || typeof scheme !== "string") return null;
  if (typeof network !== "string" || typeof asset !== "string") return null;
  const isEvm = asset.startsWith("0x");
  return { scheme, network, asset: isEvm ? asset.toLowerCase() : asset, accepted };
}

/** Reads one EIP-3009 authorization, and nothing in addition to it. */
function readTransfer(
  { scheme, network, asset, accepted }: Common,
  { authorization, signature: _signature, ...others }: Readonly<Record<string, unknown>>,
): Authorization | null {
  if (scheme !== "exact" || Object.keys(others).length > 0) return null;
  const { from, to, value: rawValue, validBefore: rawTime, nonce } = members(authorization);
  const payer = lowerAddress(from);
  const payTo = lowerAddress(to);
  const value = parseAmount(rawValue);
  const validBefore = parseTime(rawTime);
  if (payer === null || payTo === null || value === null || validBefore === null) return null;
  if (typeof nonce !== "string" || !NONCE.test(nonce) || !isAccepted(accepted, payTo, value)) {
    return null;
  }
  const named = { scheme, method: "eip3009" as const, network, asset, payer, payTo };
  return { ...named, value, validBefore, nonce: nonce.toLowerCase(), facilitator: null, ...PLAIN };
}

/** Reads one Permit2 transfer with witness, for the proxy of its scheme. */
function readPermit2(
  { scheme, network, asset, accepted }: Common,
  { permit2Authorization, signature: _signature, ...others }: Readonly<Record<string, unknown>>,
): Authorization | null {
  const fields = members(permit2Authorization);
  const permitted = members(fields["permitted"]);
  const witness = members(fields["witness"]);
  const payer = lowerAddress(fields["from"]);
  const payTo = lowerAddress(witness["to"]);
  const token = lowerAddress(permitted["token"]);
  const value = parseAmount(permitted["amount"]);
  const validBefore = parseTime(fields["deadline"]);
  const nonce = fields["nonce"] === "0" ? 0n : parseAmount(fields["nonce"]);
  if (payer === null || payTo === null || token === null || Object.keys(others).length > 0) return null;
  if (value === null || validBefore === null || nonce === null) return null;
  const spender = lowerAddress(fields["spender"]);
  if (spender === null || spender !== PROXIES[scheme] || (asset !== null && asset !== token)) return null;
  if (!isAccepted(accepted, payTo, value)) return null;
  return {
    ...{ scheme, method: "permit2", network, asset: token, payer, payTo, value, validBefore },
    nonce: `0x${nonce.toString(16).padStart(64, "0")}`,
    facilitator: lowerAddress(witness["facilitator"]),
    ...PLAIN,
  };
}

/** Whether `accepted`, by which the seller finds its offer, agrees with the signed payment. */
function isAccepted(accepted: Common["accepted"], payTo: string, value: bigint): boolean {
  if (accepted === null) return true;
  return lowerAddress(accepted["payTo"]) === payTo && parseAmount(accepted["amount"]) === value;
}

function parseTime(text: unknown): number | null {
  return typeof text === "string" && /^[0-9]{1,12}$/.test(text) ? Number(text) : null;
}
