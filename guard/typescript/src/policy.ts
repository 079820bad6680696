/** The payments that the owner of a wallet allows its software. */

import { parseAccount } from "./address.js";
import { members } from "./json.js";
import type { PayAgain } from "./payment-state.js";
import { GRADES } from "./record.js";
import { parseResource } from "./resource.js";
import type { Asset } from "./units.js";

/** A host that the owner trusts. */
export interface Trust {
  /** Only with these addresses; any if missing or empty. */
  readonly payTo?: readonly string[];
  /** Limit per payment in micro-dollars. */
  readonly max?: bigint;
  /**
   * The address that must decide the amount of `upto`: `extra.facilitatorAddress`, or on Solana
   * `extra.receiverAuthorizer`.
   */
  readonly facilitator?: string;
}

/**
 * The owner's rules. Money is in BigInts of micro-dollars: `10_000n` is a cent. A payment of exactly
 * a limit is allowed.
 */
export interface Policy {
  /** Limit of one payment. */
  readonly maxCall: bigint;
  /** Limit per host within 24 hours. */
  readonly maxHostDay: bigint;
  /** Limit within 24 hours. */
  readonly maxDay: bigint;
  /** Limit of one guard object; null: no limit. */
  readonly maxSession: bigint | null;
  /** Limit of the account; null: no limit. */
  readonly maxLifetime: bigint | null;
  /** Seconds that an authorization may stay valid. */
  readonly maxValidity: number;
  /** What to do about an endpoint that is not in the bundle. */
  readonly unknown: "allow-up-to" | "ask" | "refuse";
  /** Limit for unknown endpoints, and while the bundle is older than 7 days. */
  readonly unknownMax: bigint;
  /** A price above this factor times the usual one asks. */
  readonly priceFactor: bigint;
  /** A lower grade asks. */
  readonly minGrade: string;
  /** Dollar tokens to pay with in addition to USDC. */
  readonly assets: readonly Asset[];
  /** Hosts that the owner trusts, by name. */
  readonly trust: Readonly<Record<string, Trust>>;
  /** Hosts and payTo addresses that are never paid. */
  readonly deny: readonly string[];
  /** Extensions whose additional signatures are allowed. */
  readonly allowExtensions: readonly string[];
  /** Limit of a host's unanswered payments within 24 hours; above it, payments there ask. */
  readonly lossBudget: bigint;
  /** How many unanswered payments a host may take within 24 hours. */
  readonly lossCount: number;
  /** Whether a purchase whose payment got no answer may be paid again. */
  readonly payAgain: PayAgain;
  /** Limit of `payAgain: "auto-up-to"`. */
  readonly payAgainMax: bigint;
  /** Without any bundle, treat every endpoint as unknown instead of refusing. */
  readonly failOpen: boolean;
  /** Ask the service's preflight about unknown endpoints; it learns the host. */
  readonly secondOpinion: boolean;
}

const CENT = 10_000n;
const DOLLAR = 100n * CENT;

export const DEFAULT_POLICY: Policy = {
  maxCall: DOLLAR,
  maxHostDay: 5n * DOLLAR,
  maxDay: 20n * DOLLAR,
  maxSession: null,
  maxLifetime: null,
  maxValidity: 600,
  unknown: "allow-up-to",
  unknownMax: CENT,
  priceFactor: 2n,
  minGrade: "C",
  assets: [],
  trust: {},
  deny: [],
  allowExtensions: [],
  lossBudget: 10n * CENT,
  lossCount: 3,
  payAgain: "ask",
  payAgainMax: 0n,
  failOpen: false,
  secondOpinion: false,
};

const LIMITS = ["maxCall", "maxHostDay", "maxDay", "maxSession", "maxLifetime"] as const;
const MONEY = [...LIMITS, "unknownMax", "priceFactor", "lossBudget", "payAgainMax"] as const;
const OPTIONAL: readonly string[] = ["maxSession", "maxLifetime"];
const NUMBERS = ["maxValidity", "lossCount"] as const;
const NETWORK = /^(eip155:[1-9][0-9]*|solana:[1-9A-HJ-NP-Za-km-z]{32})$/;

/** The default policy with changes. Throws TypeError for a value that is not valid. */
export function policyOf(changes: Partial<Policy>): Policy {
  const unknownNames = Object.keys(changes).filter((name) => !(name in DEFAULT_POLICY));
  if (unknownNames.length > 0) {
    const known = Object.keys(DEFAULT_POLICY).join(", ");
    throw new TypeError(`A policy has no ${unknownNames.join(", ")}; it has ${known}.`);
  }
  const policy = { ...DEFAULT_POLICY, ...changes };
  for (const name of MONEY) {
    const value: unknown = policy[name];
    if (value === null && OPTIONAL.includes(name)) continue;
    if (typeof value !== "bigint" || value < 0n) {
      throw new TypeError(`${name} must be a BigInt of 0n or more; 10_000n is a cent.`);
    }
  }
  for (const name of NUMBERS) {
    if (!Number.isSafeInteger(policy[name]) || policy[name] < 0) {
      throw new TypeError(`${name} must be a whole number of 0 or more.`);
    }
  }
  for (const name of ["failOpen", "secondOpinion"] as const) {
    if (typeof policy[name] !== "boolean") throw new TypeError(`${name} must be true or false.`);
  }
  if (!Array.isArray(policy.assets) || !policy.assets.every(isAsset)) {
    throw new TypeError("assets must be a list of { network, address, decimals }.");
  }
  const { trust } = policy;
  if (members(trust) !== trust || !Object.values(trust).every(isTrust)) {
    throw new TypeError("trust must be { host: { payTo?, max?, facilitator? } }, max a BigInt.");
  }
  for (const name of ["deny", "allowExtensions"] as const) {
    const isTexts = Array.isArray(policy[name]) && policy[name].every((one) => typeof one === "string");
    if (!isTexts) throw new TypeError(`${name} must be a list of texts.`);
  }
  if (!GRADES.includes(policy.minGrade)) throw new TypeError("minGrade must be A, B, C, D or F.");
  if (!["allow-up-to", "ask", "refuse"].includes(policy.unknown)) {
    throw new TypeError('unknown must be "allow-up-to", "ask" or "refuse".');
  }
  if (!["never", "ask", "auto-up-to"].includes(policy.payAgain)) {
    throw new TypeError('payAgain must be "never", "ask" or "auto-up-to".');
  }
  return Object.freeze({
    ...policy,
    deny: policy.deny.map(normalName),
    trust: Object.fromEntries(Object.entries(trust).map(([host, one]) => [normalName(host), one])),
  });
}

/** A host in canonical form, or an address: hex in lower case, base58 as it is. */
export function normalName(name: string): string {
  if (name.startsWith("0x")) return name.toLowerCase();
  if (parseAccount(name) !== null) return name;
  return parseResource(`https://${name}/`)?.host ?? name.toLowerCase();
}

function isAsset({ network, address, decimals }: Asset): boolean {
  const isNamed = NETWORK.test(network) && parseAccount(address, network) !== null;
  return isNamed && Number.isSafeInteger(decimals) && decimals >= 0 && decimals <= 255;
}

function isTrust(value: unknown): boolean {
  const { payTo = [], max, facilitator, ...others } = members(value);
  const isLimit = max === undefined || (typeof max === "bigint" && max >= 0n);
  const isNames = Array.isArray(payTo) && payTo.every((one) => parseAccount(one) !== null);
  const isFacilitator = facilitator === undefined || parseAccount(facilitator) !== null;
  const isPlain = members(value) === value && Object.keys(others).length === 0;
  return isPlain && isLimit && isNames && isFacilitator;
}
