/** Batch-settlement payments: a deposit into a payment channel with a voucher, or only a voucher. */

import { keccak_256 } from "@noble/hashes/sha3";
import { lowerAddress } from "./address.js";
import { members } from "./json.js";
import { type Authorization, type Common, isSignature } from "./authorization.js";
import { parseAmount } from "./units.js";

const CONTRACT = "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003";
const PERMIT2_COLLECTOR = "0x4020425faf3b746c082c2f942b4e5159887b0005";
const DOMAIN = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const CONFIG =
  "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer," +
  "address token,uint40 withdrawDelay,bytes32 salt)";
const PARTS: readonly string[] = ["type", "channelConfig", "voucher", "deposit"];
const EVM = /^eip155:[1-9][0-9]{0,18}$/;
const BYTES32 = /^0x[0-9a-fA-F]{64}$/;

/**
 * The authorization in a payment of a channel, or null. Its `value` is the price of the offer,
 * `exposed` the deposit: a voucher can only take earlier deposits.
 */
export function readChannel(
  { scheme, network, asset, accepted }: Common,
  inner: Readonly<Record<string, unknown>>,
): Authorization | null {
  const config = members(inner["channelConfig"]);
  const voucher = members(inner["voucher"]);
  if (scheme !== "batch-settlement" || !Object.keys(inner).every((name) => PARTS.includes(name))) {
    return null;
  }
  const channel = channelId(config, network);
  const payer = lowerAddress(config["payer"]);
  const payTo = lowerAddress(config["receiver"]);
  const token = lowerAddress(config["token"]);
  if (channel === null || payer === null || payTo === null || token === null) return null;
  if (token !== asset || String(voucher["channelId"]).toLowerCase() !== channel) return null;
  const cumulative = parseAmount(voucher["maxClaimableAmount"]);
  const value = parseAmount(accepted?.["amount"]);
  if (cumulative === null || value === null || !isSignature(voucher["signature"])) return null;
  if (lowerAddress(accepted?.["payTo"]) !== payTo) return null;
  const deposit = "deposit" in inner ? readDeposit(inner["deposit"], token) : NO_DEPOSIT;
  if (deposit === null) return null;
  return {
    ...{ scheme, method: "channel", network, asset, payer, payTo, value, ...deposit },
    ...{ nonce: `${channel}:${cumulative}`, facilitator: null, evidence: channel },
  };
}

type Deposit = Pick<Authorization, "validBefore"> & { readonly exposed: bigint };
const NO_DEPOSIT: Deposit = { exposed: 0n, validBefore: 0 };

/** The amount of a deposit and the time until which it is valid, or null. */
function readDeposit(deposit: unknown, token: string): Deposit | null {
  const { amount, authorization } = members(deposit);
  const { erc3009Authorization: transfer, permit2Authorization: permit, ...others } =
    members(authorization);
  const exposed = parseAmount(amount);
  const fields = members(transfer ?? permit);
  const time = parseAmount(transfer === undefined ? fields["deadline"] : fields["validBefore"]);
  const isOne = (transfer === undefined) !== (permit === undefined);
  if (!isOne || Object.keys(others).length > 0) return null;
  if (exposed === null || time === null || time > BigInt(Number.MAX_SAFE_INTEGER)) return null;
  if (permit !== undefined) {
    const permitted = members(fields["permitted"]);
    const isSame = parseAmount(permitted["amount"]) === exposed;
    if (!isSame || lowerAddress(permitted["token"]) !== token) return null;
    if (lowerAddress(fields["spender"]) !== PERMIT2_COLLECTOR) return null;
  }
  return { exposed, validBefore: Number(time) };
}

/** The ID of a channel: the EIP-712 hash of its configuration; null if it cannot be read. */
function channelId(config: Readonly<Record<string, unknown>>, network: string): string | null {
  const names = ["payer", "payerAuthorizer", "receiver", "receiverAuthorizer", "token"];
  const addresses = names.map((name) => lowerAddress(config[name]));
  const { withdrawDelay, salt } = config;
  const isDelay = Number.isSafeInteger(withdrawDelay) && Number(withdrawDelay) >= 0;
  if (!EVM.test(network) || addresses.includes(null) || !isDelay) return null;
  if (typeof salt !== "string" || !BYTES32.test(salt)) return null;
  const chain = BigInt(network.slice("eip155:".length));
  const domain = hash(
    ...[hash(text(DOMAIN)), hash(text("x402 Batch Settlement")), hash(text("1"))],
    ...[word(chain), word(BigInt(CONTRACT))],
  );
  const struct = hash(
    hash(text(CONFIG)),
    ...addresses.map((address) => word(BigInt(address!))),
    ...[word(BigInt(Number(withdrawDelay))), word(BigInt(salt))],
  );
  return `0x${hash(text("\x19\x01"), domain, struct).toString("hex")}`;
}

const text = (value: string): Buffer => Buffer.from(value, "latin1");
const hash = (...parts: readonly Buffer[]): Buffer => Buffer.from(keccak_256(Buffer.concat(parts)));
const word = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(64, "0"), "hex");
