/**
 * The bundle's record of an endpoint, a host or a payTo. Unknown trailing places of a record are
 * ignored, so that the service can add some.
 */

/** The grades, best first. */
export const GRADES: readonly string[] = ["A", "B", "C", "D", "F"];

const MIN_PLACES = 9;
const MIN_CONDUCT_PLACES = 4;

/** An offer of the last 30 days. */
export interface KnownOffer {
  readonly network: string;
  readonly scheme: string;
  /** EVM addresses are in lower case. */
  readonly payTo: string;
  /** Micro-dollars; null in another token. */
  readonly amount: bigint | null;
}

/** How many endpoints a host or a payTo has, and how many are abusive or unavailable. */
export interface Conduct {
  readonly endpoints: number;
  readonly abusive: number;
  readonly unavailable: number;
  /** The resources of the host whose paths contain placeholders. */
  readonly patterns: readonly string[];
}

/** One endpoint as the service knew it. */
export interface EndpointRecord {
  /** The service's advice: `proceed`, `caution`, `avoid`, `not-payable`, or another. */
  readonly recommendation: string;
  /** A to F; null while nothing was measured. */
  readonly grade: string | null;
  /** 0 to 100, one decimal; null while nothing was measured. */
  readonly score: number | null;
  /** The offers of the last 30 days, the latest first. */
  readonly offers: readonly KnownOffer[];
  readonly flags: readonly string[];
  /** Unix seconds at which this was known. */
  readonly asOf: number;
}

/** A line of a bundle that is not a record. */
export class RecordError extends Error {
  override readonly name = "RecordError";
}

/**
 * The record in a line `[key, recommendation, …]` of a bundle. `addresses` are the payTo addresses
 * of the bundle, which offers name by their index. Throws RecordError.
 */
export function readRecord(line: unknown, addresses: readonly unknown[]): EndpointRecord {
  if (!Array.isArray(line) || line.length < MIN_PLACES) {
    throw new RecordError(`A record of the bundle is an array of at least ${MIN_PLACES} values.`);
  }
  // The places of demand and delivery do not decide.
  const [, recommendation, grade, score, offers, flags, , , asOf] = line as unknown[];
  return {
    recommendation: checked(isText, recommendation, "recommendation"),
    grade: grade === null ? null : checked(isText, grade, "grade"),
    score: score === null ? null : checked(isNumber, score, "score"),
    offers: checked(isRows, offers, "offers").map((row) => readOffer(row, addresses)),
    flags: checked(isTexts, flags, "flags"),
    asOf: checked(isCount, asOf, "asOf"),
  };
}

/** The record of a host or a payTo in a line `[key, endpoints, …]`. Throws RecordError. */
export function readConduct(line: unknown): Conduct {
  if (!Array.isArray(line) || line.length < MIN_CONDUCT_PLACES) {
    throw new RecordError(`A record of a host is an array of at least ${MIN_CONDUCT_PLACES} values.`);
  }
  const [, endpoints, abusive, unavailable, patterns] = line as unknown[];
  return {
    endpoints: checked(isCount, endpoints, "endpoints"),
    abusive: checked(isCount, abusive, "abusive"),
    unavailable: checked(isCount, unavailable, "unavailable"),
    // A later version may use this place for something else.
    patterns: isTexts(patterns) ? patterns : [],
  };
}

/** The distinct addresses that the endpoint asked to be paid at, the latest first. */
export function payTosOf({ offers }: EndpointRecord): string[] {
  return [...new Set(offers.map((offer) => offer.payTo))];
}

/** The distinct networks on which the endpoint asked to be paid. */
export function networksOf({ offers }: EndpointRecord): string[] {
  return [...new Set(offers.map((offer) => offer.network))];
}

/**
 * The highest price on a network by a scheme, or by any scheme if there is none, in micro-dollars;
 * null without one.
 */
export function usualPrice(
  { offers }: EndpointRecord,
  network: string,
  scheme: string,
): bigint | null {
  const priced = offers.filter((offer) => offer.network === network && offer.amount !== null);
  const same = priced.filter((offer) => offer.scheme === scheme);
  const amounts = (same.length > 0 ? same : priced).map((offer) => offer.amount as bigint);
  return amounts.length === 0 ? null : amounts.reduce((one, other) => (one > other ? one : other));
}

function readOffer(row: unknown[], addresses: readonly unknown[]): KnownOffer {
  const [network, scheme, index, amount] = row;
  return {
    network: checked(isText, network, "offers"),
    scheme: checked(isText, scheme, "offers"),
    payTo: checked(isText, addresses[checked(isCount, index, "offers")], "offers"),
    amount: amount === null ? null : BigInt(checked(isAmount, amount, "offers")),
  };
}

function checked<T>(is: (value: unknown) => value is T, value: unknown, name: string): T {
  if (is(value)) return value;
  throw new RecordError(`The record's ${name} is not of the right form.`);
}

const isText = (value: unknown): value is string => typeof value === "string";
const isNumber = (value: unknown): value is number => typeof value === "number";
const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;
const isAmount = (value: unknown): value is string => isText(value) && /^\d{1,78}$/.test(value);
const isTexts = (value: unknown): value is string[] => Array.isArray(value) && value.every(isText);
const isRows = (value: unknown): value is unknown[][] =>
  Array.isArray(value) && value.every((row) => Array.isArray(row));
