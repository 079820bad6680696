/**
 * Whether an offer may be paid. Pure; money is BigInt and `now` an argument.
 *
 * The rules are checked in the order of the codes. The first rule that refuses decides; otherwise
 * the first that asks. guard/cases/decide.json has the rules as cases for every language.
 */

import { type Code, codeIndex, REMEDIES } from "./codes.js";
import { type Offer, readTerms, type Terms } from "./offer.js";
import { normalName, type Policy, type Trust } from "./policy.js";
import {
  type Conduct,
  type EndpointRecord,
  GRADES,
  networksOf,
  payTosOf,
  usualPrice,
} from "./record.js";
import { namesHostOf, parseResource } from "./resource.js";
import { dollars } from "./units.js";

/** The payment may be signed, with these terms. */
export interface Allow {
  readonly decision: "allow";
  readonly terms: Terms;
  /** A rule that was not decisive. */
  readonly warning?: Code;
}

/** The payment must not be signed. */
export interface Refuse {
  readonly decision: "refuse";
  readonly code: Code;
  readonly reason: string;
  /** The setting that would allow it. */
  readonly remedy: string;
}

/** The payment may be signed, with these terms, if the approver agrees. */
export interface Ask {
  readonly decision: "ask";
  readonly code: Code;
  readonly reason: string;
  readonly terms: Terms;
}

export type Decision = Allow | Refuse | Ask;

/** The bundle's records for a request. */
export interface Known {
  readonly record: EndpointRecord | null;
  /**
   * The records of the URLs that redirected there, and of variants of its path: they refuse and
   * ask, and permit nothing.
   */
  readonly inherited: readonly EndpointRecord[];
  /** The record of the host. */
  readonly host: Conduct | null;
  /** The record of the offer's payTo. */
  readonly payee: Conduct | null;
  /** The time of the bundle (unix seconds); null: there is no bundle. */
  readonly asOf: number | null;
}

/** The request that answered 402. The values of this call only tighten the policy. */
export interface Asked {
  readonly url: unknown;
  /** The URLs that redirected to it. */
  readonly hops: readonly string[];
  readonly maxAmount: bigint | null;
  readonly expectPayTo: string | null;
  readonly isStopped: boolean;
}

/** Spent amounts in micro-dollars. */
export interface Spent {
  /** At the host within 24 hours. */
  readonly host: bigint;
  /** Within 24 hours. */
  readonly day: bigint;
  readonly session: bigint;
  readonly lifetime: bigint;
  /** Sum and number of unanswered payments at the host within 24 hours. */
  readonly lost: bigint;
  readonly losses: number;
}

/** An older bundle permits no endpoint. Its refusals stay valid. */
export const STALE_S = 48 * 3600;
/** An older bundle limits payments to `unknownMax`. */
const OLD_S = 7 * 24 * 3600;
const MIN_ABUSIVE = 3;
const BY_TRUST: readonly Code[] = [
  ...(["payto-unknown", "payto-varies", "price-jump", "network-unknown"] as const),
  ...(["resource-mismatch", "caution"] as const),
];
const BY_TRUSTED_PAYTO: readonly Code[] = ["avoid", "grade-low", "host-abusive", "payto-abusive"];
const BY_TRUSTED_LIMIT: readonly Code[] = ["unknown-resource", "bundle-stale"];

type Verdict = Refuse | Ask;

/** Whether an offer may be paid at `now` (unix seconds). Never throws. */
export function decide(
  known: Known,
  offer: Offer,
  asked: Asked,
  policy: Policy,
  now: number,
  spent: Spent,
): Decision {
  if (asked.isStopped) return refuse("stopped", "Payments were stopped.");
  const requested = parseResource(asked.url);
  if (requested === null) {
    return refuse("resource-mismatch", "The requested URL is not known, or cannot be read.");
  }
  const claimed = parseResource(offer.resourceUrl);
  if (claimed === null) {
    return refuse("resource-mismatch", "The 402 names no URL as its resource.");
  }
  const isElsewhere = !namesHostOf(claimed, requested);
  const mismatch = `The 402 is for ${claimed.origin}, but ${requested.origin} was requested.`;
  const terms = readTerms(offer, policy);
  if (!("payTo" in terms)) {
    return isElsewhere
      ? refuse("resource-mismatch", mismatch)
      : refuse(terms.code, terms.reason);
  }
  const { host } = requested;
  const trust = trustOf(terms, host, policy);
  const age = known.asOf === null ? null : Math.abs(now - known.asOf);
  if (isElsewhere && trust === null) {
    const isFresh = age !== null && age <= STALE_S;
    if (!isFresh || !isUsual(known.record, terms, policy)) {
      return refuse("resource-mismatch", mismatch);
    }
  }
  const overridden = overriddenBy(trust);
  const left = [
    ...checkDeny(terms, host, asked, policy),
    ...checkCall(terms, asked, policy),
    ...checkRecords(known, terms, policy),
    ...checkFlow(terms),
    ...checkAge(age, terms, policy),
    ...checkUnknown(known.record, age, terms, policy),
    ...[overBudget(terms.exposure, spent, policy)].filter((verdict) => verdict !== null),
    ...checkLosses(terms, spent, policy),
  ].filter(({ code }) => !overridden.includes(code));
  left.sort((one, other) => codeIndex(one.code) - codeIndex(other.code));
  const refused = left.find(({ decision }) => decision === "refuse");
  const warning = isElsewhere ? { warning: "resource-mismatch" as const } : {};
  return refused ?? left[0] ?? { decision: "allow", terms, ...warning };
}

/** The refusal of a payment that exceeds a budget. */
export function overBudget(exposure: bigint, spent: Spent, policy: Policy): Refuse | null {
  const limits = [
    ["over-host-budget", spent.host, policy.maxHostDay, "paid to the host in 24 hours"],
    ["over-day-budget", spent.day, policy.maxDay, "spent in 24 hours"],
    ["over-session-budget", spent.session, policy.maxSession, "spent in this session"],
    ["over-lifetime-budget", spent.lifetime, policy.maxLifetime, "spent by this account"],
  ] as const;
  for (const [code, sum, limit, what] of limits) {
    if (limit !== null && sum + exposure > limit) {
      return refuse(code, `${dollars(sum)} ${what}; the limit is ${dollars(limit)}.`);
    }
  }
  return null;
}

/** Whether a host took too much without an answer. */
export function isOverLosses(spent: Spent, policy: Policy): boolean {
  return spent.lost >= policy.lossBudget || spent.losses >= policy.lossCount;
}

/** The refusal of the offer that came furthest, which explains most; undefined without refusals. */
export function furthest(refusals: readonly Refuse[]): Refuse | undefined {
  return [...refusals].sort((one, other) => codeIndex(other.code) - codeIndex(one.code))[0];
}

export function refuse(code: Code, reason: string, remedy: string = REMEDIES[code]): Refuse {
  return { decision: "refuse", code, reason, remedy };
}

/** The owner's trust in the host, if it covers these terms. */
function trustOf(terms: Terms, host: string, policy: Policy): Trust | null {
  const trust = Object.hasOwn(policy.trust, host) ? policy.trust[host] : undefined;
  if (trust === undefined) return null;
  const { payTo = [], max, facilitator } = trust;
  if (max !== undefined && terms.exposure > max) return null;
  if (payTo.length > 0 && !payTo.map(normalName).includes(terms.payTo)) return null;
  const isOther = facilitator !== undefined && terms.facilitator !== normalName(facilitator);
  return isOther ? null : trust;
}

function overriddenBy(trust: Trust | null): readonly Code[] {
  if (trust === null) return [];
  if ((trust.payTo ?? []).length === 0) return BY_TRUST;
  const byLimit = trust.max === undefined ? [] : BY_TRUSTED_LIMIT;
  return [...BY_TRUST, ...BY_TRUSTED_PAYTO, ...byLimit];
}

function* checkDeny(terms: Terms, host: string, asked: Asked, policy: Policy): Generator<Verdict> {
    // A hop that cannot be read could not be paid.
  const hops = asked.hops.map((hop) => parseResource(hop)?.host);
  const found = [host, terms.payTo, ...hops].find((name) => name !== undefined && policy.deny.includes(name));
  if (found !== undefined) yield refuse("denied", `${found} is on the deny list.`);
}

function* checkCall(terms: Terms, asked: Asked, policy: Policy): Generator<Verdict> {
  const { maxAmount, expectPayTo } = asked;
  const limit = maxAmount !== null && maxAmount < policy.maxCall ? maxAmount : policy.maxCall;
  if (terms.exposure > limit) {
    const reason = `${dollars(terms.exposure)} is more than a call may cost (${dollars(limit)}).`;
    yield refuse("over-call-cap", reason);
  }
  if (expectPayTo !== null && terms.payTo !== normalName(expectPayTo)) {
    yield refuse("payto-unexpected", `The offer is to ${terms.payTo}, not ${expectPayTo}.`);
  }
}

/** Judges by all records; an endpoint's own record decides about payTo, network and price. */
function* checkRecords(known: Known, terms: Terms, policy: Policy): Generator<Verdict> {
  const own = known.record;
  if (own !== null) yield* checkRecord(own, terms, policy);
  for (const record of known.inherited) {
    if (own === null) yield* checkRecord(record, terms, policy);
    else yield* checkAdvice(record, terms, policy);
  }
  if (own === null || own.offers.length === 0) {
    yield* checkConduct("host-abusive", "the host", known.host, terms);
    yield* checkConduct("payto-abusive", "the payTo", known.payee, terms);
  }
}

/** Judges a host or a payTo, if the endpoint itself has no record. */
function* checkConduct(
  code: Code,
  what: string,
  found: Conduct | null,
  terms: Terms,
): Generator<Verdict> {
  if (found === null || found.abusive === 0) return;
  const reason = `${found.abusive} of ${found.endpoints} endpoints of ${what} are abusive.`;
  const isAll = found.endpoints >= MIN_ABUSIVE && found.abusive === found.endpoints;
  yield isAll ? refuse(code, reason) : ask(code, reason, terms);
}

function* checkRecord(record: EndpointRecord, terms: Terms, policy: Policy): Generator<Verdict> {
  yield* checkAdvice(record, terms, policy);
  if (record.offers.length === 0) return;
  if (!payTosOf(record).includes(terms.payTo)) {
    if (record.flags.includes("payto-varies")) {
      yield ask("payto-varies", "The endpoint asks for another payTo each time.", terms);
    } else {
      const reason = `The endpoint did not ask to be paid at ${terms.payTo} in the last 30 days.`;
      yield refuse("payto-unknown", reason);
    }
  }
  const networks = networksOf(record);
  if (networks.length > 0 && !networks.includes(terms.network)) {
    const reason = `The endpoint is known on ${networks.sort().join(", ")}, not on ${terms.network}.`;
    yield refuse("network-unknown", reason);
  }
  const usual = usualPrice(record, terms.network, terms.scheme);
  if (usual !== null && terms.exposure > policy.priceFactor * usual) {
    const times = `${policy.priceFactor} times the usual price (${dollars(usual)})`;
    yield ask("price-jump", `${dollars(terms.exposure)} is more than ${times}.`, terms);
  }
}

/** Judges by the service's recommendation and grade. */
function* checkAdvice(record: EndpointRecord, terms: Terms, policy: Policy): Generator<Verdict> {
  const { recommendation, offers, grade } = record;
  if (recommendation === "not-payable" || recommendation === "avoid") {
    yield refuse(recommendation, `The service recommends ${recommendation}.`);
  }
  if (offers.length === 0) return;
  if (recommendation === "caution") {
    yield ask("caution", "The service recommends caution.", terms);
  }
  if (grade !== null && rank(grade) > rank(policy.minGrade)) {
    yield ask("grade-low", `Grade ${grade} is below ${policy.minGrade}.`, terms);
  }
}

function* checkFlow(terms: Terms): Generator<Verdict> {
  if (terms.isSlow) yield ask("flow-unusual", "The seller is paid before it does the work.", terms);
}

function* checkAge(age: number | null, terms: Terms, policy: Policy): Generator<Verdict> {
  if (age === null && !policy.failOpen) {
    yield refuse("bundle-old", "There is no bundle, and the policy fails closed.");
  }
  if (age !== null && age > OLD_S && terms.exposure > policy.unknownMax) {
    const limit = dollars(policy.unknownMax);
    const money = `${dollars(terms.exposure)} is more than ${limit}`;
    yield refuse("bundle-old", `The bundle is older than 7 days, and ${money}.`);
  }
}

/** Applies `unknown` of the policy if the bundle does not recommend to pay the endpoint. */
function* checkUnknown(
  record: EndpointRecord | null,
  age: number | null,
  terms: Terms,
  policy: Policy,
): Generator<Verdict> {
  const isAdvised = ["proceed", "caution"].includes(record?.recommendation ?? "");
  const isKnown = record !== null && record.offers.length > 0 && isAdvised;
  const isFresh = age !== null && age <= STALE_S;
  if (isKnown && isFresh) return;
  const code = isFresh || age === null ? "unknown-resource" : "bundle-stale";
  const reason =
    code === "bundle-stale"
      ? "The bundle is older than 48 hours, so the endpoint counts as unknown."
      : "The bundle does not recommend this endpoint.";
  if (policy.unknown === "refuse") yield refuse(code, reason);
  else if (policy.unknown === "ask") yield ask(code, reason, terms);
  else if (terms.exposure > policy.unknownMax) {
    const limit = `Up to ${dollars(policy.unknownMax)} is paid without asking.`;
    yield ask(code, `${reason} ${limit}`, terms);
  }
}

function* checkLosses(terms: Terms, spent: Spent, policy: Policy): Generator<Verdict> {
  if (!isOverLosses(spent, policy)) return;
  const money = `${dollars(spent.lost)} in ${spent.losses} payments`;
  yield ask("over-loss-budget", `The host took ${money} without an answer.`, terms);
}

/** Whether payTo, network and price are those of the record. */
function isUsual(record: EndpointRecord | null, terms: Terms, policy: Policy): boolean {
  if (record === null || !payTosOf(record).includes(terms.payTo)) return false;
  const usual = usualPrice(record, terms.network, terms.scheme);
  const isNetwork = networksOf(record).includes(terms.network);
  return isNetwork && usual !== null && terms.exposure <= policy.priceFactor * usual;
}

/** 0 for the best grade; an unknown one is the worst. */
function rank(grade: string): number {
  const index = GRADES.indexOf(grade);
  return index === -1 ? GRADES.length : index;
}

function ask(code: Code, reason: string, terms: Terms): Ask {
  return { decision: "ask", code, reason, terms };
}
