/** Whether a text is the address of an account on an EVM chain (EIP-55). */

import { keccak_256 } from "@noble/hashes/sha3";

const HEX = /^0x[0-9a-fA-F]{40}$/;
const ZERO = `0x${"0".repeat(40)}`;

/**
 * The address in lower case, or null for what is none: not 20 bytes of hex, in mixed case with a
 * wrong checksum (somebody mistyped it), or the zero address, which nobody owns.
 */
export function parseAddress(text: unknown): string | null {
  if (typeof text !== "string" || !HEX.test(text)) return null;
  const lower = text.toLowerCase();
  const digits = text.slice(2);
  const isOneCase = digits === digits.toLowerCase() || digits === digits.toUpperCase();
  if (lower === ZERO) return null;
  return isOneCase || text === checksum(lower) ? lower : null;
}

/** An address in lower case, whatever its case says; for texts that our own client wrote. */
export function lowerAddress(text: unknown): string | null {
  return typeof text === "string" && HEX.test(text) ? text.toLowerCase() : null;
}

/** The mixed-case form of a lower-case address. */
function checksum(lower: string): string {
  const digits = lower.slice(2);
  const digest = Buffer.from(keccak_256(new TextEncoder().encode(digits))).toString("hex");
  const mixed = [...digits].map((digit, index) =>
    Number.parseInt(digest[index] ?? "0", 16) >= 8 ? digit.toUpperCase() : digit,
  );
  return `0x${mixed.join("")}`;
}
