// The verdicts of @x402/extensions on extensions of a 402 at URL. Reads a JSON array of {name, extension}
// from standard input and writes a JSON array of booleans: whether each one is accepted. A sign-in
// challenge is accepted if the official client signs it with an EVM and a Solana account. The extension of
// "offer" is one signed offer, verified with the key in its `kid`.
import { readFileSync } from "node:fs";
import { createKeyPairSignerFromPrivateKeyBytes } from "@solana/kit";
import { validateDiscoveryExtension, validateDiscoveryExtensionSpec } from "@x402/extensions/bazaar";
import { verifyOfferSignatureJWS } from "@x402/extensions/offer-receipt";
import { validatePaymentIdentifier } from "@x402/extensions/payment-identifier";
import { createSIWxClientHook } from "@x402/extensions/sign-in-with-x";
import { privateKeyToAccount } from "viem/accounts";

const requestUrl = "https://api.example.com/weather";
const accounts = [
  privateKeyToAccount("0x" + "11".repeat(32)),
  await createKeyPairSignerFromPrivateKeyBytes(new Uint8Array(32).fill(17)),
];

async function signs(extension) {
  const paymentRequired = { extensions: { "sign-in-with-x": extension } };
  const hooks = accounts.map((account) => createSIWxClientHook(account)({ paymentRequired, requestUrl }));
  return (await Promise.all(hooks)).every((result) => result !== undefined);
}

const validators = {
  bazaar: (extension) => validateDiscoveryExtension(extension).valid,
  "bazaar spec": (extension) => validateDiscoveryExtensionSpec(extension).valid,
  "payment-identifier": (extension) => validatePaymentIdentifier(extension).valid,
  "sign-in-with-x": signs,
  offer: (offer) => verifyOfferSignatureJWS(offer).then(() => true, () => false),
};

const cases = JSON.parse(readFileSync(0));
const verdicts = await Promise.all(cases.map(({ name, extension }) => validators[name](extension)));
process.stdout.write(JSON.stringify(verdicts));
