/**
 * Money: an amount is a BigInt of atomic units of its token; a limit is a BigInt of micro-dollars
 * (millionths of a dollar). For USDC, with its 6 decimals, both are the same number.
 */

/** A dollar token. */
export interface Asset {
  /** CAIP-2. */
  readonly network: string;
  /** The contract, or the mint on Solana. */
  readonly address: string;
  readonly decimals: number;
  /** The token's EIP-712 domain if a seller does not name it. */
  readonly domainName?: string;
  readonly domainVersion?: string;
}

const MICRO_DECIMALS = 6;
const UINT256_MAX = 2n ** 256n - 1n;
const USD_COIN = "USD Coin";
const AMOUNT = /^[1-9][0-9]{0,77}$/;

/** Circle's USDC by network. */
export const USDC: readonly Asset[] = [
  ["eip155:1", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", USD_COIN],
  ["eip155:10", "0x0b2c639c533813f4aa9d7837caf62653d097ff85", USD_COIN],
  ["eip155:50", "0xfa2958cb79b0491cc627c1557f441ef849ca8eb1"],
  ["eip155:51", "0xb5ab69f7bbada22b28e79c8ffaece55ef1c771d4"],
  ["eip155:137", "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359", USD_COIN],
  ["eip155:143", "0x754704bc059f8c67012fed69bc8a327a5aafb603"],
  ["eip155:1328", "0x4fcf1784b31630811181f670aea7a7bef803eaed"],
  ["eip155:1329", "0xe15fc38f6d8c56af07bbcbe3baf5708a2bf42392"],
  ["eip155:5042", "0x3600000000000000000000000000000000000000"],
  ["eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", USD_COIN],
  ["eip155:10143", "0x534b2f3a21130d7a60830c2df862319e593943a3"],
  ["eip155:42161", "0xaf88d065e77c8cc2239327c5edb3a432268e5831", USD_COIN],
  ["eip155:42220", "0xceba9300f2b948710d2653dd7b07f33a8b32118c"],
  ["eip155:43113", "0x5425890298aed601595a70ab815c96711a31bc65", USD_COIN],
  ["eip155:43114", "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e", USD_COIN],
  ["eip155:80002", "0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582"],
  ["eip155:84532", "0x036cbd53842c5426634e7929541ec2318f3dcf7e"],
  ["eip155:421614", "0x75faf114eafb1bdbe2f0316df893fd58ce46aa4d", USD_COIN],
  ["eip155:5042002", "0x3600000000000000000000000000000000000000"],
  ["eip155:11142220", "0x01c5c0122039549ad1493b8220cabedd739bc44e"],
  [
    "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
    "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
  ],
  [
    "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
    "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU",
  ],
  [
    "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z",
    "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU",
  ],
].map(([network, address, domainName = "USDC"]) => ({
  network: network!,
  address: address!,
  decimals: MICRO_DECIMALS,
  domainName,
  domainVersion: "2",
}));

/** Network names of x402 version 1 whose chain has USDC, as CAIP-2. */
export const V1_NETWORKS: ReadonlyMap<string, string> = new Map([
  ["avalanche", "eip155:43114"],
  ["avalanche-fuji", "eip155:43113"],
  ["base", "eip155:8453"],
  ["base-sepolia", "eip155:84532"],
  ["celo", "eip155:42220"],
  ["monad", "eip155:143"],
  ["monad-testnet", "eip155:10143"],
  ["polygon", "eip155:137"],
  ["polygon-amoy", "eip155:80002"],
  ["sei", "eip155:1329"],
  ["sei-testnet", "eip155:1328"],
]);

/** The token of a network among USDC and those that the owner allows, or null. */
export function findAsset(
  network: unknown,
  address: unknown,
  allowed: readonly Asset[],
): Asset | null {
  if (typeof network !== "string" || typeof address !== "string") return null;
  // Base58 is case-sensitive: another case is another token.
  const isSolana = network.startsWith("solana:");
  const isSame = (one: Asset): boolean =>
    isSolana ? one.address === address : one.address.toLowerCase() === address.toLowerCase();
  return [...USDC, ...allowed].find((one) => one.network === network && isSame(one)) ?? null;
}

/** Micro-dollars of an amount, rounded up. */
export function microUsd(asset: Asset, amount: bigint): bigint {
  if (asset.decimals <= MICRO_DECIMALS)
    return amount * 10n ** BigInt(MICRO_DECIMALS - asset.decimals);
  const unit = 10n ** BigInt(asset.decimals - MICRO_DECIMALS);
  return (amount + unit - 1n) / unit;
}

/**
 * A positive atomic amount from its decimal text without sign, exponent or leading zeros; null for
 * anything else, and for more than a uint256 holds.
 */
export function parseAmount(text: unknown): bigint | null {
  if (typeof text !== "string" || !AMOUNT.test(text)) return null;
  const amount = BigInt(text);
  return amount <= UINT256_MAX ? amount : null;
}

/** Micro-dollars as text with two decimals, and up to six if they are not zero. */
export function dollars(micro: bigint): string {
  const rest = (micro % 1_000_000n).toString().padStart(6, "0");
  const cents = rest.replace(/0+$/, "").padEnd(2, "0");
  return `$${(micro / 1_000_000n).toLocaleString("en-US")}.${cents}`;
}
