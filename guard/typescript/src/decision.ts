/**
 * Whether an offer may be paid. Pure; money is BigInt and `now` an argument.
 *
 * The first rule that refuses decides; where none does, the first that asks. So nobody is asked
 * about a payment that a later rule refuses anyway. guard/cases/decisions.json holds the rules as
 * cases for every language.
 */

import { parseAddress } from "./address.js";
import { members } from "./json.js";
import type { Offer, Terms } from "./offer.js";
import type { Policy } from "./policy.js";
import { type EndpointRecord, GRADES } from "./record.js";
import { namesHostOf, parseResource } from "./resource.js";
import { type Asset, dollars, microUsd, parseAmount, USDC } from "./units.js";

/** Why a payment was refused or needs consent, in the order in which it is checked. */
export type Code =
  /** The 402 names another host, and payTo, network or price are not those of the record. */
  | "resource-mismatch"
  /** It does not ask for an `exact` EIP-3009 transfer of the network's USDC or an allowed token. */
  | "asset-unknown"
  /** The amount is no positive number of atomic units. */
  | "amount-invalid"
  /** The amount is above `maxCall`. */
  | "over-call-cap"
  /** The payee is no address, has a wrong checksum, or is the token itself. */
  | "payto-malformed"
  /** The authorization would be valid for no time, or for longer than `maxTimeoutSeconds`. */
  | "timeout-invalid"
  /** The service recommends `not-payable`. */
  | "not-payable"
  /** The service recommends `avoid`. */
  | "avoid"
  /** The endpoint did not ask to be paid to this address in the last 30 days. */
  | "payto-unknown"
  /** The payee varies, and the host has no pin (asks) or one that does not fit (refuses). */
  | "payto-varies"
  /** The endpoint is known on another network. */
  | "network-unknown"
  /** The amount is above `priceFactor` times the known price. */
  | "price-jump"
  /** The service recommends `caution`: asks. */
  | "caution"
  /** The grade is below `minGrade`: asks. */
  | "grade-low"
  /** The bundle does not know the endpoint, or has no opinion: `unknown` says what to do. */
  | "unknown-resource"
  /** The bundle is older than 48 hours, so the endpoint counts as unknown. */
  | "bundle-stale"
  /** The bundle is older than 7 days and the amount above `unknownMax`, or there is no bundle. */
  | "bundle-old"
  /** With this payment the host would get more than `maxHostDay` today. */
  | "over-host-budget"
  /** With this payment more than `maxDay` would be spent today. */
  | "over-day-budget"
  /** The same request was paid `maxRepeats` times in the last ten minutes. */
  | "retry-storm"
  /** What was signed, or is about to be sent, is not what was allowed. */
  | "signed-differs"
  /** An earlier payment of the same purchase has no answer, and may still be taken or was. */
  | "payment-unresolved";

/** The payment may be signed, with these terms. */
export interface Allow {
  readonly decision: "allow";
  readonly terms: Terms;
  /** A rule that speaks against the payment and does not decide. */
  readonly warning?: Code;
}

/** The payment must not be signed. */
export interface Refuse {
  readonly decision: "refuse";
  readonly code: Code;
  readonly reason: string;
}

/** The payment may be signed, with these terms, if whoever is asked agrees. */
export interface Ask {
  readonly decision: "ask";
  readonly code: Code;
  readonly reason: string;
  readonly terms: Terms;
}

export type Decision = Allow | Refuse | Ask;

/**
 * What was signed before: micro-dollars today (UTC) to this host and to all, and how often this
 * very request was paid in the last ten minutes.
 */
export interface Spent {
  readonly hostDay: bigint;
  readonly day: bigint;
  readonly repeats: number;
}

/** What is at hand beside the offer. */
export interface Situation {
  /** The URL that answered with the offer, after redirects. */
  readonly requestUrl: unknown;
  /** What the bundle knows of the endpoint. */
  readonly record: EndpointRecord | null;
  /**
   * The records of the URLs that redirected there, and of variants of its path: they refuse and
   * ask, and permit nothing.
   */
  readonly inherited?: readonly EndpointRecord[];
  /** Unix seconds; null where there is no bundle. */
  readonly bundleAsOf: number | null;
  readonly spent: Spent;
  /** Unix seconds. */
  readonly now: number;
}

/** A bundle that is older vouches for nobody; what it refuses stays refused. */
export const STALE_S = 48 * 3600;
/** With a bundle that is older no more than `unknownMax` is paid. */
const OLD_S = 7 * 24 * 3600;
/** The seconds in which payments for the same request are counted. */
export const REPEAT_S = 600;

/** Whether an offer may be paid. Never throws, whatever the offer holds. */
export function decide(offer: Offer, situation: Situation, policy: Policy): Decision {
  const { record, inherited = [], bundleAsOf, now, spent } = situation;
  const asked = parseResource(situation.requestUrl);
  if (asked === null) {
    return refuse("resource-mismatch", "The URL that was asked is not known, or cannot be read.");
  }
  const claimed = parseResource(offer.resourceUrl);
  if (claimed === null) {
    return refuse("resource-mismatch", "The 402 names no URL as its resource.");
  }
  const isElsewhere = !namesHostOf(claimed, asked);
  const age = bundleAsOf === null ? null : Math.abs(now - bundleAsOf);
  const terms = readTerms(offer, policy);
  if (isElsewhere) {
    const isFresh = age !== null && age <= STALE_S;
    if ("decision" in terms || !isFresh || !isUsual(record, terms, policy)) {
      const reason = `The 402 is for ${claimed.origin}, but ${asked.origin} was asked.`;
      return refuse("resource-mismatch", reason);
    }
  }
  if ("decision" in terms) return terms;
  const verdicts = [
    ...ofRecord(record, terms, asked.host, policy),
    ...ofInherited(inherited, record, terms, asked.host, policy),
    ofAge(age, terms, policy),
    ofUnknown(record, age, terms, policy),
    overBudget(terms.microUsd, spent, policy),
  ].filter((verdict) => verdict !== null);
  const refused = verdicts.find((verdict) => verdict.decision === "refuse");
  const warning = isElsewhere ? { warning: "resource-mismatch" as const } : {};
  return refused ?? verdicts[0] ?? { decision: "allow", terms, ...warning };
}

/** The terms of an offer that is well formed and within `maxCall`. */
export function readTerms(offer: Offer, policy: Policy): Terms | Refuse {
  const asset = assetOf(offer, policy);
  if (asset === null) {
    const reason =
      "It asks for something else than an exact transfer of the network's USDC by signature.";
    return refuse("asset-unknown", reason);
  }
  const amount = parseAmount(offer.amount);
  if (amount === null) {
    return refuse("amount-invalid", "The amount is no positive number of atomic units.");
  }
  const micro = microUsd(asset, amount);
  if (micro > policy.maxCall) {
    const most = dollars(policy.maxCall);
    return refuse("over-call-cap", `${dollars(micro)} is more than one call may cost (${most}).`);
  }
  const payTo = parseAddress(offer.payTo);
  if (payTo === null || payTo === asset.address.toLowerCase()) {
    return refuse("payto-malformed", "The payee is no address of an account.");
  }
  const timeout = offer.timeout;
  if (!isWhole(timeout) || timeout < 1 || timeout > policy.maxTimeoutSeconds) {
    const most = policy.maxTimeoutSeconds;
    return refuse("timeout-invalid", `The payment would not be valid for 1 to ${most} seconds.`);
  }
  const { network, address } = asset;
  const facilitator = parseAddress(members(offer.extra)["facilitatorAddress"]);
  const token = { network, asset: address.toLowerCase() };
  return { ...token, amount, microUsd: micro, payTo, timeout, facilitator };
}

/** Whether a payment goes over a budget of the day, or repeats one too often. */
export function overBudget(micro: bigint, spent: Spent, policy: Policy): Refuse | null {
  if (spent.hostDay + micro > policy.maxHostDay) {
    const most = dollars(policy.maxHostDay);
    const paid = dollars(spent.hostDay);
    return refuse("over-host-budget", `The host got ${paid} today, and may get ${most} a day.`);
  }
  if (spent.day + micro > policy.maxDay) {
    const most = dollars(policy.maxDay);
    return refuse("over-day-budget", `${dollars(spent.day)} were spent today, and ${most} may be.`);
  }
  if (spent.repeats >= policy.maxRepeats) {
    const minutes = REPEAT_S / 60;
    const reason = `The same request was paid ${spent.repeats} times in ${minutes} minutes.`;
    return refuse("retry-storm", reason);
  }
  return null;
}

export function refuse(code: Code, reason: string): Refuse {
  return { decision: "refuse", code, reason };
}

/** Whether payTo, network and price are those of the record. */
function isUsual(record: EndpointRecord | null, terms: Terms, policy: Policy): boolean {
  return (
    record !== null &&
    isPayee(record, terms) &&
    terms.network === record.network &&
    record.amount !== null &&
    terms.microUsd <= policy.priceFactor * record.amount
  );
}

function isPayee({ payTo }: EndpointRecord, terms: Terms): boolean {
  return payTo.some(([address]) => address.toLowerCase() === terms.payTo);
}

/** The token of an offer, null unless the guard can read what would be signed for it. */
function assetOf(offer: Offer, policy: Policy): Asset | null {
  const { network, asset } = offer;
  const { assetTransferMethod: method = "eip3009" } = members(offer.extra);
  if (offer.scheme !== "exact" || method !== "eip3009" || typeof asset !== "string") return null;
  const address = asset.toLowerCase();
  const known = [...USDC, ...policy.assets];
  return (
    known.find((one) => one.network === network && one.address.toLowerCase() === address) ?? null
  );
}

/** What the bundle knows of the endpoint. */
function* ofRecord(
  record: EndpointRecord | null,
  terms: Terms,
  host: string,
  policy: Policy,
): Generator<Refuse | Ask> {
  if (record === null) return;
  yield* ofAdvice(record, terms, policy);
  const { payTo, network, amount } = record;
  if (payTo.length === 0) return;
  if (!isPayee(record, terms)) yield* ofPayee(record, terms, host, policy);
  if (network !== null && network !== terms.network) {
    const reason = `The endpoint is known on ${network}, not on ${terms.network}.`;
    yield refuse("network-unknown", reason);
  }
  if (amount !== null && terms.microUsd > policy.priceFactor * amount) {
    const times = `${policy.priceFactor} times the known price (${dollars(amount)})`;
    yield refuse("price-jump", `${dollars(terms.microUsd)} is more than ${times}.`);
  }
}

/**
 * What the records of redirecting URLs and of path variants refuse or ask. An endpoint with a
 * record of its own is held to its own payTo, network and price.
 */
function* ofInherited(
  inherited: readonly EndpointRecord[],
  own: EndpointRecord | null,
  terms: Terms,
  host: string,
  policy: Policy,
): Generator<Refuse | Ask> {
  for (const record of inherited) {
    if (own === null) yield* ofRecord(record, terms, host, policy);
    else yield* ofAdvice(record, terms, policy);
  }
}

/** What the service advises about an endpoint. */
function* ofAdvice(
  { recommendation, payTo, grade }: EndpointRecord,
  terms: Terms,
  policy: Policy,
): Generator<Refuse | Ask> {
  if (recommendation === "not-payable" || recommendation === "avoid") {
    yield refuse(recommendation, `The service says ${recommendation}.`);
  }
  if (payTo.length === 0) return;
  if (recommendation === "caution") yield ask("caution", "The service says caution.", terms);
  if (grade !== null && rank(grade) > rank(policy.minGrade)) {
    yield ask("grade-low", `Grade ${grade} is below ${policy.minGrade}.`, terms);
  }
}

/** What to do about a payee that the record does not know. */
function* ofPayee(
  { flags }: EndpointRecord,
  terms: Terms,
  host: string,
  policy: Policy,
): Generator<Refuse | Ask> {
  if (!flags.includes("payto-varies")) {
    const reason = `The endpoint did not ask to be paid at ${terms.payTo} in the last 30 days.`;
    yield refuse("payto-unknown", reason);
    return;
  }
  const pin = Object.hasOwn(policy.pins, host) ? policy.pins[host] : undefined;
  if (pin === undefined) {
    const reason = "The endpoint asks for another payee each time, and its host is not pinned.";
    yield ask("payto-varies", reason, terms);
  } else if (terms.microUsd > pin.maxAmount) {
    const most = dollars(pin.maxAmount);
    const reason = `${dollars(terms.microUsd)} is more than the pin of ${host} allows (${most}).`;
    yield refuse("payto-varies", reason);
  } else if (pin.facilitator !== undefined && terms.facilitator !== pin.facilitator.toLowerCase()) {
    const reason = `The offer does not name the facilitator that ${host} is pinned to.`;
    yield refuse("payto-varies", reason);
  }
}

/** What the age of the bundle forbids. */
function ofAge(age: number | null, terms: Terms, policy: Policy): Refuse | null {
  if (age === null) {
    const reason = "There is no bundle, and the policy does not fail open.";
    return policy.failOpen ? null : refuse("bundle-old", reason);
  }
  if (age <= OLD_S || terms.microUsd <= policy.unknownMax) return null;
  const above = `${dollars(terms.microUsd)} is more than ${dollars(policy.unknownMax)}`;
  return refuse("bundle-old", `The bundle is older than 7 days, and ${above}.`);
}

/** What the policy says where the bundle does not vouch for the endpoint. */
function ofUnknown(
  record: EndpointRecord | null,
  age: number | null,
  terms: Terms,
  policy: Policy,
): Refuse | Ask | null {
  const isKnown =
    record !== null &&
    record.payTo.length > 0 &&
    (record.recommendation === "proceed" || record.recommendation === "caution");
  const isStale = age !== null && age > STALE_S;
  if (isKnown && age !== null && !isStale) return null;
  const code = isStale ? "bundle-stale" : "unknown-resource";
  const why = isStale
    ? "The bundle is older than 48 hours, so the endpoint counts as unknown."
    : "Nothing is known of this endpoint.";
  if (policy.unknown === "refuse") return refuse(code, why);
  if (policy.unknown === "ask") return ask(code, why, terms);
  if (terms.microUsd <= policy.unknownMax) return null;
  return ask(code, `${why} Up to ${dollars(policy.unknownMax)} would be paid unasked.`, terms);
}

/** 0 for the best grade; an unknown one is the worst. */
function rank(grade: string): number {
  const index = GRADES.indexOf(grade);
  return index === -1 ? GRADES.length : index;
}

function ask(code: Code, reason: string, terms: Terms): Ask {
  return { decision: "ask", code, reason, terms };
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value);
}
