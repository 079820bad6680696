/** What a bundle says of one endpoint. */

/** The grades, best first. */
export const GRADES: readonly string[] = ["A", "B", "C", "D", "F"];

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
  /** CAIP-2, or null where none is advertised. */
  readonly network: string | null;
  /** The advertised price in micro-dollars; null where none is, or in a token of other decimals. */
  readonly amount: bigint | null;
  readonly flags: readonly string[];
  /** Unix seconds at which this was known. */
  readonly asOf: number;
}

/** A line of a bundle that is no record. */
export class RecordError extends Error {
  override readonly name = "RecordError";
}

/** The record in a line `[key, recommendation, …]` of a bundle. Throws RecordError. */
export function readRecord(line: unknown): EndpointRecord {
  if (!Array.isArray(line) || line.length !== 9) {
    throw new RecordError("A record of the bundle must be an array of 9.");
  }
  const [, recommendation, grade, score, payTo, network, amount, flags, asOf] = line as unknown[];
  return {
    recommendation: checked(isText, recommendation, "recommendation"),
    grade: grade === null ? null : checked(isText, grade, "grade"),
    score: score === null ? null : checked(isNumber, score, "score"),
    payTo: checked(isAddresses, payTo, "payTo"),
    network: network === null ? null : checked(isText, network, "network"),
    amount: amount === null ? null : BigInt(checked(isAmount, amount, "amount")),
    flags: checked(isTexts, flags, "flags"),
    asOf: checked(isSecond, asOf, "asOf"),
  };
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
