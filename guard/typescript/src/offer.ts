/** A seller's payment terms, and how the guard reads them. Pure. */

import { parseAccount, parseAddress } from "./address.js";
import type { Code } from "./codes.js";
import { members } from "./json.js";
import type { Policy } from "./policy.js";
import { type Asset, findAsset, microUsd, parseAmount, V1_NETWORKS } from "./units.js";

/** How a payer signs. */
export type Method = "eip3009" | "permit2" | "solana" | "channel";

/** Of the SDK's batch-settlement client. */
const DEPOSIT_FACTOR = 5n;
const SLOW_FLOWS: readonly unknown[] = ["upfront", "escrow"];
/** The extension by which a seller recognises a purchase. */
export const PAYMENT_ID = "payment-identifier";
const GAS_EXTENSIONS = ["eip2612GasSponsoring", "erc20ApprovalGasSponsoring"] as const;

/** One entry of `accepts` as the seller wrote it: every field may hold any value. */
export interface Offer {
  readonly scheme: unknown;
  readonly network: unknown;
  readonly asset: unknown;
  readonly amount: unknown;
  readonly payTo: unknown;
  readonly timeout: unknown;
  readonly extra: unknown;
  /** The resource in the 402. */
  readonly resourceUrl: unknown;
  /** Names of the extensions for which the wallet would sign something in addition. */
  readonly extensions: readonly string[];
  /** The seller signed another offer. */
  readonly isContradicted: boolean;
}

/** An offer that is well formed. */
export interface Terms {
  readonly scheme: string;
  readonly method: Method;
  /** CAIP-2. */
  readonly network: string;
  /** The token's contract (EVM: lower-case hex). */
  readonly asset: string;
  /** Atomic units of the token. */
  readonly amount: bigint;
  /** Atomic units that the signature lets anyone take: the ceiling of `upto`, a deposit. */
  readonly exposed: bigint;
  /** The same in micro-dollars. */
  readonly exposure: bigint;
  /** EVM: lower-case hex. */
  readonly payTo: string;
  /** The most seconds for which the authorization may be valid. */
  readonly timeout: number;
  /** The token's EIP-712 domain. */
  readonly domainName: string;
  readonly domainVersion: string;
  /**
   * Who decides the amount of `upto`: `extra.facilitatorAddress` in lower-case hex, or on Solana
   * `extra.receiverAuthorizer`; null if it is missing.
   */
  readonly facilitator: string | null;
  /** The flow is `upfront` or `escrow`. */
  readonly isSlow: boolean;
}

/** An offer that is refused whatever is known about its seller. */
export interface BadOffer {
  readonly code: Code;
  readonly reason: string;
}

/**
 * The offer in an entry of `accepts` from JSON. The version of the 402 decides which fields count:
 * those of the other version may be present and are not signed. Never throws.
 */
export function readOffer(
  entry: unknown,
  resourceUrl: unknown,
  version: unknown = 2,
  extensions: readonly string[] = [],
  isContradicted = false,
): Offer {
  const fields = members(entry);
  const isV1 = version === 1;
  const network = fields["network"];
  return {
    scheme: fields["scheme"],
    network: isV1 ? V1_NETWORKS.get(String(network)) : network,
    asset: fields["asset"],
    amount: fields[isV1 ? "maxAmountRequired" : "amount"],
    payTo: fields["payTo"],
    timeout: fields["maxTimeoutSeconds"],
    extra: fields["extra"],
    resourceUrl: isV1 ? fields["resource"] : resourceUrl,
    extensions,
    isContradicted,
  };
}

/** The terms of a well-formed offer, or the first reason why it is refused. */
export function readTerms(offer: Offer, policy: Policy): Terms | BadOffer {
  const extra = members(offer.extra);
  const method = methodOf(offer, extra);
  if (method === null) {
    const named = extra["assetTransferMethod"];
    const name = typeof named === "string" ? `${offer.scheme} (${named})` : String(offer.scheme);
    const reason = `Scheme ${name} on ${String(offer.network)} is not supported.`;
    return { code: "scheme-unsupported", reason };
  }
  const asset = findAsset(offer.network, offer.asset, policy.assets);
  if (asset === null) return { code: "asset-unknown", reason: "The token is not the network's USDC." };
  const amount = parseAmount(offer.amount);
  if (amount === null) {
    const reason = "The amount is not a positive number of atomic units.";
    return { code: "amount-invalid", reason };
  }
  const payTo = parseAccount(offer.payTo, asset.network);
  const token = method === "solana" ? asset.address : asset.address.toLowerCase();
  if (payTo === null || payTo === token) {
    return { code: "payto-malformed", reason: "The payTo is not an address of an account." };
  }
  const { timeout } = offer;
  if (!isWhole(timeout) || timeout < 1 || timeout > policy.maxValidity) {
    const reason = `The payment would not be valid for 1 to ${policy.maxValidity} seconds.`;
    return { code: "timeout-invalid", reason };
  }
  const signing = offer.extensions.filter((name) => !policy.allowExtensions.includes(name));
  if (signing.length > 0 && (method === "permit2" || method === "channel")) {
    const reason = `The wallet would also sign for ${signing.join(", ")}.`;
    return { code: "extension-signs", reason };
  }
  if (offer.isContradicted) {
    const reason = "The seller signed another offer than this one.";
    return { code: "offer-contradicted", reason };
  }
  const exposed = exposedOf(method, amount, extra);
  return {
    scheme: String(offer.scheme),
    method,
    network: asset.network,
    asset: token,
    amount,
    exposed,
    exposure: microUsd(asset, exposed),
    payTo,
    timeout,
    ...domainOf(extra, asset),
    facilitator:
      method === "solana"
        ? parseAccount(extra["receiverAuthorizer"], asset.network)
        : parseAddress(extra["facilitatorAddress"]),
    isSlow: SLOW_FLOWS.includes(extra["paymentFlow"]),
  };
}

/** The declared extensions for which a capable wallet signs something in addition. */
export function signingExtensions(declared: unknown): string[] {
  return GAS_EXTENSIONS.filter((name) => Object.hasOwn(members(declared), name));
}

/** The extensions for which a wallet signed something instead of repeating the declaration. */
export function changedExtensions(payload: unknown, required: unknown): string[] {
  const [sent, declared] = [payload, required].map((one) => members(members(one)["extensions"]));
  const isEcho = (name: string): boolean =>
    JSON.stringify(sent?.[name]) === JSON.stringify(declared?.[name]);
  return signingExtensions(sent).filter((name) => !isEcho(name));
}

/** The 402 with an ID of the purchase, if it declares the extension `payment-identifier`. */
export function withPaymentId(required: unknown, newId: () => string): unknown {
  const extensions = members(members(required)["extensions"]);
  if (!Object.hasOwn(extensions, PAYMENT_ID)) return required;
  const declared = members(extensions[PAYMENT_ID]);
  const named = { ...declared, info: { ...members(declared["info"]), id: newId() } };
  return { ...members(required), extensions: { ...extensions, [PAYMENT_ID]: named } };
}

/** Micro-dollars of a part of the terms' exposure (atomic units), rounded up. */
export function partOfExposure({ exposure, exposed }: Terms, part: bigint): bigint {
  return (exposure * part + exposed - 1n) / exposed;
}

/** How an offer is signed, or null if the guard has no rules of evidence for it. */
function methodOf({ scheme, network }: Offer, extra: Readonly<Record<string, unknown>>): Method | null {
  const isNamed = Object.hasOwn(extra, "assetTransferMethod");
  const { assetTransferMethod: method = "eip3009" } = extra;
  if (typeof network === "string" && network.startsWith("solana:")) {
    const isUpto = scheme === "upto" && parseAccount(extra["receiverAuthorizer"], network) !== null;
    return (scheme === "exact" || isUpto) && !isNamed ? "solana" : null;
  }
  const isKnown = method === "eip3009" || method === "permit2";
  if (scheme === "exact") return isKnown ? method : null;
  if (scheme === "upto" && (method === "permit2" || !isNamed)) {
    // Without the facilitator's address the SDK cannot sign, and anyone could settle.
    return parseAddress(extra["facilitatorAddress"]) === null ? null : "permit2";
  }
  return scheme === "batch-settlement" && isKnown ? "channel" : null;
}

/** The atomic units that may be taken with the signature. */
function exposedOf(
  method: Method,
  amount: bigint,
  { minDeposit }: Readonly<Record<string, unknown>>,
): bigint {
  if (method !== "channel") return amount;
  const isNumber = typeof minDeposit === "string" && /^[0-9]{1,78}$/.test(minDeposit);
  const announced = isNumber ? BigInt(minDeposit) : 0n;
  const usual = DEPOSIT_FACTOR * amount;
  return announced > usual ? announced : usual;
}

/** Name and version of the token's EIP-712 domain, as the SDK takes them. */
function domainOf(
  extra: Readonly<Record<string, unknown>>,
  asset: Asset,
): Pick<Terms, "domainName" | "domainVersion"> {
  if (!Object.hasOwn(extra, "name")) {
    const { domainName = "USDC", domainVersion = "2" } = asset;
    return { domainName, domainVersion };
  }
  const { name, version = "1" } = extra;
  return {
    domainName: typeof name === "string" ? name : "",
    domainVersion: typeof version === "string" ? version : "",
  };
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value);
}
