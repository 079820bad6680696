/**
 * Solana payments: one token transfer (`exact`), or one deposit into a payment channel (`upto`),
 * signed by the payer and paid for by a facilitator.
 */

import { createHash, createPublicKey, verify } from "node:crypto";
import { decodeBase58, encodeBase58, parseAccount } from "./address.js";
import type { Authorization, Common } from "./authorization.js";
import { parseAmount } from "./units.js";

const TOKEN_PROGRAMS: readonly string[] = [
  "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA",
  "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb",
];
const CHANNEL_PROGRAM = "CHNLxYvVA28MJP9PrFuDXccuoGXAx7jBacfLEkahyGsX";
/** Compute budget and memo. */
const OTHER_PROGRAMS: readonly string[] = [
  "ComputeBudget111111111111111111111111111111",
  "MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr",
];
const TOKEN_ACCOUNT_PROGRAM = "ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL";
const UPTO_MEMBERS: readonly string[] = [
  ...["authorizedSigner", "channelId", "deposit", "expiresAt", "from", "maxAmount", "nonce"],
  ...["openSlot", "openTransaction", "validAfter"],
];
const TRANSFER_CHECKED = 12;
const TRANSFER_BYTES = 10;
const OPEN = 1;
/** With one recipient. */
const OPEN_BYTES = 67;
const OPEN_ACCOUNTS = 14;
const ALL_BPS = 10_000;
const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;
/** Of a transaction on the network. */
const MAX_BYTES = 1232;
/** The field of Ed25519, and the constant d of its curve. */
const P = 2n ** 255n - 19n;
const D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;

interface Instruction {
  readonly program: string;
  readonly accounts: readonly string[];
  readonly data: Buffer;
}

interface Transaction {
  readonly signatures: readonly Buffer[];
  /** The bytes that are signed. */
  readonly message: Buffer;
  readonly keys: readonly string[];
  readonly instructions: readonly Instruction[];
}

/** The transfer of an instruction from the payer's token account. */
interface Payment {
  readonly owner: string;
  readonly mint: string;
  readonly source: string;
  readonly value: bigint;
  /** Who decides the amount that is settled (`upto`). */
  readonly facilitator: string | null;
}

/**
 * The authorization in a Solana payload. Null unless it is exactly one transfer to the payTo, or one
 * deposit that only the payTo can get, next to compute budget and memo instructions.
 */
export function readSolana(
  common: Common,
  inner: Readonly<Record<string, unknown>>,
): Authorization | null {
  const { accepted, scheme } = common;
  const payTo = parseAccount(accepted?.["payTo"], "solana:");
  const isUpto = scheme === "upto";
  const names = Object.keys(inner);
  const isKnown = names.every((name) => (isUpto ? UPTO_MEMBERS.includes(name) : name === "transaction"));
  const text = inner[isUpto ? "openTransaction" : "transaction"];
  if (payTo === null || !isKnown || typeof text !== "string") return null;
  const transaction = readTransaction(text);
  const used = transaction?.instructions.filter(({ program }) => !OTHER_PROGRAMS.includes(program));
  const [instruction, ...others] = used ?? [];
  if (transaction === null || instruction === undefined || others.length > 0) return null;
  const payment = isUpto ? readOpen(instruction, payTo, inner) : readTransfer(instruction, payTo);
  if (payment === null || payment.mint !== common.asset) return null;
  if (parseAmount(accepted?.["amount"]) !== payment.value) return null;
  const signature = ownSignature(transaction, payment.owner);
  if (signature === null) return null;
  const { owner: payer, source: account, value, facilitator } = payment;
  return {
    ...{ scheme, method: "solana", network: common.network, asset: common.asset, payer, payTo },
    // A transaction ends with its blockhash, not at a time.
    ...{ value, validBefore: 0, nonce: signature, facilitator, exposed: null },
    evidence: JSON.stringify({ account, signature }),
  };
}

/** Reads one TransferChecked from the payer's token account to that of the payTo. */
function readTransfer({ program, accounts, data }: Instruction, payTo: string): Payment | null {
  const [source, mint, target, owner, ...more] = accounts;
  if (!TOKEN_PROGRAMS.includes(program) || owner === undefined || more.length > 0) return null;
  if (data.length !== TRANSFER_BYTES || data[0] !== TRANSFER_CHECKED) return null;
  if (target !== tokenAccount(payTo, mint!, program)) return null;
  if (source !== tokenAccount(owner, mint!, program)) return null;
  return { owner, mint: mint!, source, value: data.readBigUInt64LE(1), facilitator: null };
}

/** Reads the opening of a channel whose whole deposit only the payTo or the payer can get. */
function readOpen(
  { program, accounts, data }: Instruction,
  payTo: string,
  { authorizedSigner, channelId, deposit, from, maxAmount }: Readonly<Record<string, unknown>>,
): Payment | null {
  if (program !== CHANNEL_PROGRAM || accounts.length !== OPEN_ACCOUNTS) return null;
  if (data.length !== OPEN_BYTES || data[0] !== OPEN || data.readUInt32LE(29) !== 1) return null;
  const [owner, , , mint, signer, channel, source, escrow, token] = accounts as readonly string[];
  const recipient = encodeBase58(data.subarray(33, 65));
  if (recipient !== payTo || data.readUInt16LE(65) !== ALL_BPS) return null;
  if (from !== owner || authorizedSigner !== signer || channelId !== channel) return null;
  if (!TOKEN_PROGRAMS.includes(token!) || source !== tokenAccount(owner!, mint!, token!)) return null;
  const value = data.readBigUInt64LE(9);
  if (escrow !== tokenAccount(channel!, mint!, token!)) return null;
  if (deposit !== String(value) || maxAmount !== String(value)) return null;
  return { owner: owner!, mint: mint!, source: source!, value, facilitator: signer! };
}

/** The signature of the payer, who must not pay the fee; null if it is missing or wrong. */
function ownSignature({ keys, signatures, message }: Transaction, owner: string): string | null {
  const index = keys.indexOf(owner);
  const signature = signatures[index];
  if (index < 1 || signature === undefined) return null;
  const x = Buffer.from(decodeBase58(owner)!).toString("base64url");
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  return verify(null, message, key, signature) ? encodeBase58(signature) : null;
}

/** A transaction of version 0 that looks up no accounts elsewhere; null for any other bytes. */
function readTransaction(base64: string): Transaction | null {
  const bytes = Buffer.from(base64, "base64");
  if (bytes.length > MAX_BYTES || bytes.toString("base64") !== base64) return null;
  let at = 0;
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new RangeError("The transaction is cut.");
    return bytes.subarray(at, (at += length));
  };
  const takeByte = (): number => take(1)[0]!;
  // "compact-u16": seven bits per byte.
  const takeLength = (): number => {
    const low = takeByte();
    return low < 0x80 ? low : (low & 0x7f) | (takeByte() << 7);
  };
  const takeAll = <T>(one: () => T): T[] => Array.from({ length: takeLength() }, one);
  try {
    const signatures = takeAll(() => take(SIGNATURE_BYTES));
    const message = bytes.subarray(at);
    if (takeByte() !== 0x80 || takeByte() !== signatures.length) return null;
    take(2);
    const keys = takeAll(() => encodeBase58(take(KEY_BYTES)));
    take(KEY_BYTES);
    const keyAt = (index: number): string => {
      const key = keys[index];
      if (key === undefined) throw new RangeError("The transaction names no such account.");
      return key;
    };
    const instructions = takeAll(() => {
      const program = keyAt(takeByte());
      const accounts = takeAll(() => keyAt(takeByte()));
      return { program, accounts, data: take(takeLength()) };
    });
    const isWhole = takeLength() === 0 && at === bytes.length;
    return isWhole ? { signatures, message, keys, instructions } : null;
  } catch {
    return null;
  }
}

/** The associated token account of an owner: the first program-derived address off the curve. */
function tokenAccount(owner: string, mint: string, program: string): string | null {
  const seeds = [owner, program, mint].map(decodeBase58);
  const end = [decodeBase58(TOKEN_ACCOUNT_PROGRAM), Buffer.from("ProgramDerivedAddress")];
  for (let bump = 255; bump >= 0; bump -= 1) {
    const hash = createHash("sha256");
    for (const part of [...seeds, Buffer.of(bump), ...end]) hash.update(part ?? "");
    const address = hash.digest();
    if (!isOnCurve(address)) return encodeBase58(address);
  }
  return null;
}

/** Whether 32 bytes are a point of Ed25519 (RFC 8032 section 5.1.3). */
function isOnCurve(bytes: Buffer): boolean {
  const little = Buffer.from(bytes).reverse();
  little[0]! &= 0x7f; // the sign of x
  const square = BigInt(`0x${little.toString("hex")}`) ** 2n % P;
  // x² = (y² - 1) / (d y² + 1): a quotient is a square if the product is.
  const product = ((square + P - 1n) * (D * square + 1n)) % P;
  return product === 0n || power(product, (P - 1n) / 2n) === 1n;
}

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let factor = base, rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = (result * factor) % P;
    factor = (factor * factor) % P;
  }
  return result;
}
