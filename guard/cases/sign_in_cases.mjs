// Writes sign_in.json: challenges of sign-in-with-x, and the message that the official extension signs.
// node guard/cases/sign_in_cases.mjs
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createSIWxMessage } from "@x402/extensions/sign-in-with-x";

export const FILE = new URL("./sign_in.json", import.meta.url);
const URL_ASKED = "https://api.example.com/v1/weather?city=Oslo";
const ADDRESS = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A";
const BASE = { chainId: "eip155:8453", type: "eip191" };
const INFO = {
  ...{ domain: "api.example.com", uri: "https://api.example.com/v1/weather", version: "1" },
  ...{ nonce: "0123456789abcdef0123456789abcdef", issuedAt: "2026-01-01T00:00:00.000Z" },
  resources: ["https://api.example.com/v1/weather"],
};
const { resources: _resources, ...PLAIN } = INFO;
const LONG = {
  ...{ ...INFO, statement: "Sign in to your purchase", requestId: "7" },
  ...{ expirationTime: "2026-01-01T00:05:00.000Z", notBefore: "2026-01-01T00:00:00.000Z" },
};
const SOLANA = { chainId: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", type: "ed25519" };
const OTHER = { chainId: "eip155:137", type: "eip191", signatureScheme: "eip191" };

/** Name, `info`, chains, and the chain whose message is signed; null: nothing is signed. */
const CASES = [
  ["a challenge", INFO, [BASE], BASE],
  ["a challenge without resources", PLAIN, [BASE], BASE],
  ["a challenge with every field", LONG, [BASE], BASE],
  ["the network of the payment is preferred", INFO, [OTHER, BASE], BASE],
  ["another EVM network", INFO, [SOLANA, OTHER], OTHER],
  ["no EVM network", INFO, [SOLANA], null],
  ["no network", INFO, [], null],
  ["another domain", { ...INFO, domain: "example.com" }, [BASE], null],
  ["a domain with a port", { ...INFO, domain: "api.example.com:8443" }, [BASE], null],
  ["a URI of another host", { ...INFO, uri: "https://evil.example.net/" }, [BASE], null],
  ["a URI with another scheme", { ...INFO, uri: "http://api.example.com/" }, [BASE], null],
  ["an invalid URI", { ...INFO, uri: "weather" }, [BASE], null],
  ["a statement with a line break", { ...INFO, statement: "a\nURI: https://evil.example.net/" }, [BASE], null],
  ["a nonce with a line break", { ...INFO, nonce: "01234567\nx" }, [BASE], null],
  ["a resource with a line break", { ...INFO, resources: ["https://api.example.com/\n- x"] }, [BASE], null],
  ["resources that are not a list", { ...INFO, resources: "https://api.example.com/" }, [BASE], null],
  ["no nonce", { ...INFO, nonce: undefined }, [BASE], null],
  ["a number as the time", { ...INFO, issuedAt: 7 }, [BASE], null],
];

/** The text of sign_in.json: the same each time. */
export function document() {
  const cases = CASES.map(([name, info, supportedChains, chain]) => ({
    ...{ name, url: URL_ASKED, address: ADDRESS, network: BASE.chainId },
    extension: { info, supportedChains },
    message: chain === null ? null : createSIWxMessage({ ...info, ...chain }, ADDRESS),
  }));
  return `[\n${cases.map((one) => JSON.stringify(one)).join(",\n")}\n]\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(FILE, document());
