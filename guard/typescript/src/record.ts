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
  readonly payTo: string;
  /** Micro-dollars; null in another token. */
  readonly amount: bigint | null;
}

/** How many endpoints a host or a payTo has, and how many are abusive or unavailable. */
export interface Conduct {
  readonly endpoints: number;
  readonly abusive: number;
  readonly unavailable: number;
}

/** One endpoint as the service knew it. */
export interface EndpointRecord {
  /** The service's advice: `proceed`, `caution`, `avoid`, `not-payable`, or another. */
  readonly recommendation: string;
  /** A to F; null while nothing was measured. */
  readonly grade: string | null;
  /** 0 to 100, one decimal; null while nothing was measured. */
  readonly score: number | null;
  /** Every address of the last 30 days, newest first, with the unix second it was first seen. */
  readonly payTo: readonly (readonly [address: string, since: number])[];
  /** CAIP-2; null if none is advertised. */
  readonly network: string | null;
  /** The advertised price in micro-dollars; null if none is, or in another token. */
  readonly amount: bigint | null;
  readonly flags: readonly string[];
  /** Unix seconds at which this was known. */
  readonly asOf: number;
  readonly offers: readonly KnownOffer[];
}

/** A line of a bundle that is not a record. */
export class RecordError extends Error {
  override readonly name = "RecordError";
}

/** The record in a line `[key, recommendation, …]` of a bundle. Throws RecordError. */
export function readRecord(line: unknown): EndpointRecord {
  if (!Array.isArray(line) || line.length < MIN_PLACES) {
    throw new RecordError(`A record of the bundle is an array of at least ${MIN_PLACES} values.`);
  }
  const [, recommendation, grade, score, payTo, network, amount, flags, asOf, offers] =
    line as unknown[];
  return {
    recommendation: checked(isText, recommendation, "recommendation"),
    grade: grade === null ? null : checked(isText, grade, "grade"),
    score: score === null ? null : checked(isNumber, score, "score"),
    payTo: checked(isAddresses, payTo, "payTo"),
    network: network === null ? null : checked(isText, network, "network"),
    amount: amount === null ? null : BigInt(checked(isAmount, amount, "amount")),
    flags: checked(isTexts, flags, "flags"),
    asOf: checked(isSecond, asOf, "asOf"),
    offers: readOffers(offers),
  };
}

/** The record of a host or a payTo in a line `[key, endpoints, …]`. Throws RecordError. */
export function readConduct(line: unknown): Conduct {
  if (!Array.isArray(line) || line.length < MIN_CONDUCT_PLACES) {
    throw new RecordError(`A record of a host is an array of at least ${MIN_CONDUCT_PLACES} values.`);
  }
  const [, endpoints, abusive, unavailable] = line as unknown[];
  return {
    endpoints: checked(isSecond, endpoints, "endpoints"),
    abusive: checked(isSecond, abusive, "abusive"),
    unavailable: checked(isSecond, unavailable, "unavailable"),
  };
}

/** Whether the endpoint asked to be paid at an address (EVM: lower case). */
export function hasPayTo({ payTo, offers }: EndpointRecord, address: string): boolean {
  const listed = [...payTo.map(([one]) => one), ...offers.map((offer) => offer.payTo)];
  return listed.some((one) => (one.startsWith("0x") ? one.toLowerCase() : one) === address);
}

/** Every network on which the endpoint asked to be paid. */
export function networksOf({ network, offers }: EndpointRecord): string[] {
  const own = network === null ? [] : [network];
  return [...new Set([...own, ...offers.map((offer) => offer.network)])];
}

/** The highest known price on a network by a scheme, in micro-dollars. */
export function usualPrice(
  record: EndpointRecord,
  network: string,
  scheme: string,
): bigint | null {
  const amounts = record.offers
    .filter((offer) => offer.network === network && offer.scheme === scheme)
    .map((offer) => offer.amount)
    .filter((amount) => amount !== null);
  if (network === record.network && record.amount !== null) amounts.push(record.amount);
  if (amounts.length === 0) return record.amount;
  return amounts.reduce((one, other) => (one > other ? one : other));
}

/** The offers; a later version may use this place for something else. */
function readOffers(rows: unknown): KnownOffer[] {
  if (!Array.isArray(rows) || !rows.every((row) => Array.isArray(row))) return [];
  return rows.map((row: unknown[]) => {
    const [network, scheme, payTo, amount] = row;
    return {
      network: checked(isText, network, "offers"),
      scheme: checked(isText, scheme, "offers"),
      payTo: checked(isText, payTo, "offers"),
      amount: amount === null ? null : BigInt(checked(isAmount, amount, "offers")),
    };
  });
}

function checked<T>(is: (value: unknown) => value is T, value: unknown, name: string): T {
  if (is(value)) return value;
  throw new RecordError(`The record's ${name} is not of the right form.`);
}

const isText = (value: unknown): value is string => typeof value === "string";
const isNumber = (value: unknown): value is number => typeof value === "number";
const isSecond = (value: unknown): value is number => Number.isSafeInteger(value);
const isAmount = (value: unknown): value is string => isText(value) && /^\d{1,78}$/.test(value);
const isTexts = (value: unknown): value is string[] => Array.isArray(value) && value.every(isText);
const isAddresses = (value: unknown): value is [string, number][] =>
  Array.isArray(value) &&
  value.every((pair) => Array.isArray(pair) && isText(pair[0]) && isSecond(pair[1]));
