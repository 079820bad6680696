/** The authorization in a signed payment: what all schemes and networks have in common. */

import type { Method } from "./offer.js";

const SIGNATURE = /^0x(?:[0-9a-fA-F]{2}){1,4096}$/;

/** The authorization in a payload. EVM values are lower-case hex, times unix seconds. */
export interface Authorization {
  readonly scheme: string;
  readonly method: Method;
  /** CAIP-2. */
  readonly network: string;
  /** Null in x402 version 1, whose payload does not name it. */
  readonly asset: string | null;
  readonly payer: string;
  readonly payTo: string;
  /** Atomic units. */
  readonly value: bigint;
  /** 0: it does not end at a time. */
  readonly validBefore: number;
  /** Identifies the authorization among those of its payer. */
  readonly nonce: string;
  readonly facilitator: string | null;
  /** JSON by which the reader of the chain finds it. */
  readonly evidence: string | null;
  /** Atomic units that may be taken, if these are not the value: a deposit. */
  readonly exposed: bigint | null;
}

/** What all payloads have in common. */
export interface Common {
  readonly scheme: string;
  readonly network: string;
  readonly asset: string | null;
  /** What `accepted` says is paid; null in version 1. */
  readonly accepted: Readonly<Record<string, unknown>> | null;
}

/** Whether a value is a signature in hex. */
export function isSignature(value: unknown): boolean {
  return typeof value === "string" && SIGNATURE.test(value);
}
