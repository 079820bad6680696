// Writes signed.json: payments as the official TypeScript clients sign them, their authorizations, and
// modified payments without an authorization. Run it again after an upgrade of these clients:
// node guard/cases/signed_cases.mjs
import { createPrivateKey, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from "@solana-program/token";
import { createKeyPairSignerFromPrivateKeyBytes, getBase58Decoder, getBase58Encoder } from "@solana/kit";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { ExactSvmScheme } from "@x402/svm/exact/client";
import { UptoSvmScheme } from "@x402/svm/upto/client";
import { privateKeyToAccount } from "viem/accounts";

export const FILE = new URL("./signed.json", import.meta.url);
const NOW = 1_767_225_600;
const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
const BASE = "eip155:8453";
const USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
const THIEF = "0x1c47e9c085c2b7458f5b6c16cce21bb1a1a1d0bb";
const seed = (byte) => new Uint8Array(32).fill(byte);
const bytesOf = (address) => Buffer.from(getBase58Encoder().encode(address));
const textOf = (bytes) => getBase58Decoder().decode(bytes);
const wallets = await Promise.all([0x11, 0x12, 0x13, 0x14, 0x15].map((byte) => createKeyPairSignerFromPrivateKeyBytes(seed(byte))));
const [payer, payee, feePayer, receiverAuthorizer, thief] = wallets;
const account = privateKeyToAccount(`0x${"11".repeat(32)}`);

const solanaOffer = (scheme, changes = {}) => ({
  ...{ scheme, network: SOLANA, asset: MINT, amount: "5000", payTo: payee.address },
  ...{ maxTimeoutSeconds: 60, ...changes },
  extra: {
    ...{ feePayer: feePayer.address, recentBlockhash: "1".repeat(32), lastValidBlockHeight: 250 },
    ...{ memo: "order", tokenProgram: TOKEN_PROGRAM_ADDRESS, recentSlot: 7 },
    ...(scheme === "upto" ? { receiverAuthorizer: receiverAuthorizer.address, withdrawDelay: 900 } : {}),
    ...changes.extra,
  },
});
const channelOffer = (changes = {}) => ({
  ...{ scheme: "batch-settlement", network: BASE, asset: USDC, amount: "1000" },
  ...{ payTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", maxTimeoutSeconds: 60 },
  extra: {
    ...{ name: "USD Coin", version: "2", withdrawDelay: 900 },
    ...{ receiverAuthorizer: "0x8ba1f109551bD432803012645Ac136ddd64DBA72", ...changes },
  },
});

const MINT_ACCOUNT = { programAddress: TOKEN_PROGRAM_ADDRESS, decimals: 6 };

async function pay(scheme, accepted) {
  // The client asks a node for the decimals of a token that it has not seen.
  scheme.mintCache?.set(`${SOLANA}:${MINT}`, MINT_ACCOUNT);
  const { payload } = await scheme.createPaymentPayload(2, accepted);
  return { x402Version: 2, resource: { url: "https://api.example.com/" }, accepted, payload };
}

/** A copy of a payment, changed. */
function changed(payment, change) {
  const copy = structuredClone(payment);
  change(copy);
  return copy;
}

/** The same payment with other bytes in its transaction, which the payer has signed. */
function signedAgain(payment, from, to) {
  const name = "transaction" in payment.payload ? "transaction" : "openTransaction";
  return changed(payment, ({ payload }) => {
    const bytes = Buffer.from(payload[name], "base64");
    const at = bytes.indexOf(from);
    if (at === -1 || from.length !== to.length) throw new Error("There is nothing to change.");
    bytes.set(to, at);
    const message = bytes.subarray(1 + 64 * bytes[0]);
    const keys = message.subarray(5);
    const index = [0, 1, 2].find((one) => keys.subarray(32 * one, 32 * one + 32).equals(bytesOf(payer.address)));
    const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed(0x11)]);
    const key = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
    bytes.set(sign(null, message, key), 1 + 64 * index);
    payload[name] = bytes.toString("base64");
  });
}

const u64 = (value) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};

async function solanaAuthorization({ accepted, payload }) {
  const [source] = await findAssociatedTokenPda({
    ...{ mint: MINT, owner: payer.address, tokenProgram: TOKEN_PROGRAM_ADDRESS },
  });
  const bytes = Buffer.from(payload.transaction ?? payload.openTransaction, "base64");
  return {
    ...{ scheme: accepted.scheme, method: "solana", network: SOLANA, asset: MINT },
    ...{ payer: payer.address, payTo: payee.address, value: accepted.amount, validBefore: 0 },
    nonce: textOf(bytes.subarray(65, 129)),
    facilitator: accepted.extra.receiverAuthorizer ?? null,
    ...{ exposed: null, account: source },
  };
}

function channelAuthorization({ accepted, payload }) {
  const { channelId, maxClaimableAmount } = payload.voucher;
  return {
    ...{ scheme: "batch-settlement", method: "channel", network: BASE, asset: USDC.toLowerCase() },
    ...{ payer: account.address.toLowerCase(), payTo: accepted.payTo.toLowerCase() },
    ...{ value: accepted.amount, validBefore: payload.deposit === undefined ? 0 : NOW + 60 },
    nonce: `${channelId.toLowerCase()}:${maxClaimableAmount}`,
    ...{ facilitator: null, exposed: payload.deposit?.amount ?? "0", account: null },
  };
}

async function exactCases() {
  const scheme = new ExactSvmScheme(payer);
  const good = await pay(scheme, solanaOffer("exact"));
  const ata = async (owner) =>
    bytesOf((await findAssociatedTokenPda({ mint: MINT, owner, tokenProgram: TOKEN_PROGRAM_ADDRESS }))[0]);
  const [target, other] = [await ata(payee.address), await ata(thief.address)];
  const memo = bytesOf("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr");
  const own = await pay(scheme, solanaOffer("exact", { extra: { feePayer: payer.address } }));
  return [
    ["a transfer", good, await solanaAuthorization(good)],
    ["a transfer to another account than the payTo's", signedAgain(good, target, other)],
    ["a transfer from another account than the payer's", signedAgain(good, await ata(payer.address), other)],
    ["a transfer of another amount than was accepted", signedAgain(good, u64(5000), u64(5001))],
    ["a transfer by another token instruction", signedAgain(good, Buffer.of(12, ...u64(5000)), Buffer.of(13, ...u64(5000)))],
    ["another instruction next to the transfer", signedAgain(good, memo, bytesOf(thief.address))],
    ["another payTo was accepted", changed(good, (one) => (one.accepted.payTo = thief.address))],
    ["another token was accepted", changed(good, (one) => (one.accepted.asset = thief.address))],
    ["a member in addition", changed(good, (one) => (one.payload.more = ""))],
    ["a signature that is wrong", changed(good, (one) => {
      const bytes = Buffer.from(one.payload.transaction, "base64");
      bytes[70] ^= 1;
      one.payload.transaction = bytes.toString("base64");
    })],
    ["a transaction that is cut", changed(good, (one) => {
      const bytes = Buffer.from(one.payload.transaction, "base64");
      one.payload.transaction = bytes.subarray(0, -1).toString("base64");
    })],
    ["an invalid transaction", changed(good, (one) => (one.payload.transaction = "AAAA"))],
    ["the payer pays the fee", own],
  ].map(([name, payment, authorization = null]) => ({ name: `Solana exact: ${name}`, payment, authorization }));
}

async function uptoCases() {
  const good = await pay(new UptoSvmScheme(payer), solanaOffer("upto"));
  const to = bytesOf(payee.address);
  const recipient = Buffer.from([1, 0, 0, 0, ...to, 0x10, 0x27]);
  return [
    ["a deposit", good, await solanaAuthorization(good)],
    ["another recipient", signedAgain(good, to, bytesOf(thief.address))],
    ["a part for the recipient", signedAgain(good, recipient, Buffer.from([1, 0, 0, 0, ...to, 0x88, 0x13]))],
    ["a higher deposit", signedAgain(good, u64(5000), u64(5001))],
    ["another authorized signer", signedAgain(good, bytesOf(receiverAuthorizer.address), bytesOf(thief.address))],
    ["a channel of another program", signedAgain(good, bytesOf("CHNLxYvVA28MJP9PrFuDXccuoGXAx7jBacfLEkahyGsX"), bytesOf(thief.address))],
    ["another signer was announced", changed(good, (one) => (one.payload.authorizedSigner = thief.address))],
    ["another deposit was announced", changed(good, (one) => (one.payload.deposit = "4000"))],
    ["another payer was announced", changed(good, (one) => (one.payload.from = thief.address))],
    ["a voucher in addition", changed(good, (one) => (one.payload.voucherSignature = ""))],
    ["a transfer in place of the deposit", changed(good, (one) => (one.payload = { transaction: one.payload.openTransaction }))],
  ].map(([name, payment, authorization = null]) => ({ name: `Solana upto: ${name}`, payment, authorization }));
}

async function channelCases() {
  const deposit = await pay(new BatchSettlementEvmScheme(account), channelOffer());
  const permit = await pay(new BatchSettlementEvmScheme(account), channelOffer({ assetTransferMethod: "permit2" }));
  const entries = new Map([[
    deposit.payload.voucher.channelId.toLowerCase(),
    { balance: "5000", chargedCumulativeAmount: "1000" },
  ]]);
  const storage = { get: async (key) => entries.get(key), set: async () => undefined, delete: async () => undefined };
  const voucher = await pay(new BatchSettlementEvmScheme(account, { storage }), channelOffer());
  const config = (name, value) => (one) => (one.payload.channelConfig[name] = value);
  return [
    ["a deposit by EIP-3009", deposit, channelAuthorization(deposit)],
    ["a deposit by Permit2", permit, channelAuthorization(permit)],
    ["a voucher", voucher, channelAuthorization(voucher)],
    ["another receiver", changed(deposit, config("receiver", THIEF))],
    ["another token", changed(deposit, config("token", THIEF))],
    ["another delay", changed(deposit, config("withdrawDelay", 901))],
    ["a voucher of another channel", changed(deposit, (one) => (one.payload.voucher.channelId = `0x${"11".repeat(32)}`))],
    ["a voucher without a signature", changed(voucher, (one) => (one.payload.voucher.signature = "0x"))],
    ["a deposit without a time", changed(deposit, (one) => delete one.payload.deposit.authorization.erc3009Authorization.validBefore)],
    ["two deposits", changed(deposit, (one) => Object.assign(one.payload.deposit.authorization, permit.payload.deposit.authorization))],
    ["a deposit for another contract", changed(permit, (one) => (one.payload.deposit.authorization.permit2Authorization.spender = THIEF))],
    ["a deposit of another token", changed(permit, (one) => (one.payload.deposit.authorization.permit2Authorization.permitted.token = THIEF))],
    ["a deposit of another amount", changed(permit, (one) => (one.payload.deposit.amount = "6000"))],
    ["a member in addition", changed(deposit, (one) => (one.payload.more = ""))],
  ].map(([name, payment, authorization = null]) => ({ name: `batch-settlement: ${name}`, payment, authorization }));
}

/** The text of signed.json: the same each time. */
export async function document() {
  const { now } = Date;
  const { getRandomValues } = globalThis.crypto;
  Date.now = () => NOW * 1000;
  globalThis.crypto.getRandomValues = (bytes) => bytes.fill(7);
  try {
    const cases = [...(await exactCases()), ...(await uptoCases()), ...(await channelCases())];
    return `[\n${cases.map((one) => JSON.stringify(one)).join(",\n")}\n]\n`;
  } finally {
    Date.now = now;
    globalThis.crypto.getRandomValues = getRandomValues;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(FILE, await document());
