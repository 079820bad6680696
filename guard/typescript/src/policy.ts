/** What the owner of a wallet lets its software pay. */

import { parseAddress } from "./address.js";
import { members } from "./json.js";
import { GRADES } from "./record.js";
import type { Asset } from "./units.js";

/** What an owner allows a host whose payee varies. */
export interface Pin {
  /** The most for one payment. */
  readonly maxAmount: bigint;
  /** The address that the offer must name as `extra.facilitatorAddress`. */
  readonly facilitator?: string;
}

/**
 * Limits of money are BigInts of micro-dollars: `10_000n` is a cent. A payment of exactly a limit
 * is allowed.
 */
export interface Policy {
  /** The most for one payment. */
  readonly maxCall: bigint;
  /** The most for all payments to a host on a day (UTC). */
  readonly maxHostDay: bigint;
  /** The most for all payments on a day (UTC). */
  readonly maxDay: bigint;
  /** How often the same request may be paid in ten minutes. */
  readonly maxRepeats: number;
  /** The most seconds for which an authorization may be valid. */
  readonly maxTimeoutSeconds: number;
  /** What to do about an endpoint that the bundle does not know. */
  readonly unknown: "allow-up-to" | "ask" | "refuse";
  /** The limit for an unknown endpoint, and for every one while the bundle is old. */
  readonly unknownMax: bigint;
  /** A price above this multiple of the known one is refused. */
  readonly priceFactor: bigint;
  /** A lower grade asks. */
  readonly minGrade: string;
  /** Dollar tokens to pay with besides USDC. */
  readonly assets: readonly Asset[];
  /** What hosts whose payee varies are allowed, by host name. */
  readonly pins: Readonly<Record<string, Pin>>;
  /** While no bundle could be had: treat every endpoint as unknown instead of refusing all. */
  readonly failOpen: boolean;
}

const CENT = 10_000n;
const DOLLAR = 100n * CENT;

export const DEFAULT_POLICY: Policy = {
  maxCall: DOLLAR,
  maxHostDay: 5n * DOLLAR,
  maxDay: 20n * DOLLAR,
  maxRepeats: 3,
  maxTimeoutSeconds: 3600,
  unknown: "allow-up-to",
  unknownMax: CENT,
  priceFactor: 2n,
  minGrade: "C",
  assets: [],
  pins: {},
  failOpen: false,
};

const MONEY = ["maxCall", "maxHostDay", "maxDay", "unknownMax", "priceFactor"] as const;
const NUMBERS = ["maxRepeats", "maxTimeoutSeconds"] as const;

/** The default policy with changes. Throws TypeError for a value that is none of its kind. */
export function policyOf(changes: Partial<Policy>): Policy {
  const unknownNames = Object.keys(changes).filter((name) => !(name in DEFAULT_POLICY));
  if (unknownNames.length > 0) {
    const known = Object.keys(DEFAULT_POLICY).join(", ");
    throw new TypeError(`A policy has no ${unknownNames.join(", ")}; it has ${known}.`);
  }
  const policy = { ...DEFAULT_POLICY, ...changes };
  for (const name of MONEY) {
    if (typeof policy[name] !== "bigint" || policy[name] < 0n) {
      throw new TypeError(`${name} must be a BigInt of 0n or more; 10_000n is a cent.`);
    }
  }
  for (const name of NUMBERS) {
    if (!Number.isSafeInteger(policy[name]) || policy[name] < 0) {
      throw new TypeError(`${name} must be a whole number of 0 or more.`);
    }
  }
  if (typeof policy.failOpen !== "boolean") throw new TypeError("failOpen must be true or false.");
  if (!Array.isArray(policy.assets) || !policy.assets.every(isAsset)) {
    throw new TypeError("assets must be a list of { network, address, decimals }.");
  }
  if (!Object.values(members(policy.pins)).every(isPin) || members(policy.pins) !== policy.pins) {
    throw new TypeError("pins must be { host: { maxAmount, facilitator? } }, maxAmount a BigInt.");
  }
  if (!GRADES.includes(policy.minGrade)) throw new TypeError("minGrade must be A, B, C, D or F.");
  if (!["allow-up-to", "ask", "refuse"].includes(policy.unknown)) {
    throw new TypeError('unknown must be "allow-up-to", "ask" or "refuse".');
  }
  return policy;
}

function isAsset({ network, address, decimals }: Asset): boolean {
  const isNamed = /^eip155:[1-9][0-9]*$/.test(network) && parseAddress(address) !== null;
  return isNamed && Number.isSafeInteger(decimals) && decimals >= 0 && decimals <= 255;
}

function isPin(value: unknown): boolean {
  const { maxAmount, facilitator } = members(value);
  const isLimit = typeof maxAmount === "bigint" && maxAmount >= 0n;
  return isLimit && (facilitator === undefined || parseAddress(facilitator) !== null);
}
