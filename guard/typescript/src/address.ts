/** Addresses of accounts on EVM chains (EIP-55) and Solana (base58). */

import { keccak_256 } from "@noble/hashes/sha3";

const HEX = /^0x[0-9a-fA-F]{40}$/;
const ZERO = `0x${"0".repeat(40)}`;
const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const KEY_BYTES = 32;

/** The address of an account on a network (CAIP-2; any if empty), or null if it is malformed. */
export function parseAccount(text: unknown, network = ""): string | null {
  const isSolana = network === "" ? !String(text).startsWith("0x") : network.startsWith("solana:");
  if (!isSolana) return parseAddress(text);
  if (typeof text !== "string") return null;
  const bytes = decodeBase58(text);
  return bytes?.length === KEY_BYTES && bytes.some((byte) => byte > 0) ? text : null;
}

/**
 * An EVM address in lower case, or null: not 20 bytes of hex, in mixed case with a wrong checksum,
 * or the zero address.
 */
export function parseAddress(text: unknown): string | null {
  if (typeof text !== "string" || !HEX.test(text)) return null;
  const lower = text.toLowerCase();
  const digits = text.slice(2);
  const isOneCase = digits === digits.toLowerCase() || digits === digits.toUpperCase();
  if (lower === ZERO) return null;
  return isOneCase || text === checksum(lower) ? lower : null;
}

/** An EVM address in lower case, whatever its case; for texts that the x402 client wrote. */
export function lowerAddress(text: unknown): string | null {
  return typeof text === "string" && HEX.test(text) ? text.toLowerCase() : null;
}

/** The bytes of a base58 text, or null. */
export function decodeBase58(text: string): Uint8Array | null {
  if (text.length > 128) return null;
  let value = 0n;
  for (const digit of text) {
    const index = BASE58.indexOf(digit);
    if (index === -1) return null;
    value = value * 58n + BigInt(index);
  }
  const hex = value === 0n ? "" : value.toString(16);
  const bytes = Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex");
  const zeros = text.length - text.replace(/^1+/, "").length;
  return Buffer.concat([Buffer.alloc(zeros), bytes]);
}

/** The base58 text of bytes. */
export function encodeBase58(bytes: Uint8Array): string {
  let value = BigInt(`0x${Buffer.from(bytes).toString("hex") || "0"}`);
  let text = "";
  for (; value > 0n; value /= 58n) text = BASE58[Number(value % 58n)] + text;
  const zeros = bytes.findIndex((byte) => byte > 0);
  return "1".repeat(zeros === -1 ? bytes.length : zeros) + text;
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
