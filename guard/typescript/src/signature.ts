/** The signature of a bundle: a detached JWS (RFC 7515, RFC 7797) by an Ed25519 key (RFC 8037). */

import { createHash, createPublicKey, verify } from "node:crypto";
import { decoded, members } from "./json.js";

/** A public Ed25519 key as a JWK (RFC 8037 section 2). */
export interface PublicKey {
  readonly kty: "OKP";
  readonly crv: "Ed25519";
  readonly x: string;
}

const KEY_BYTES = /^[A-Za-z0-9_-]{43}$/;
const FORM = /^([A-Za-z0-9_-]{1,4096})\.\.([A-Za-z0-9_-]{86})$/;

/** A signature, or a key, that cannot be trusted; the message says why. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/** The public key in a JWK; other members are ignored. Throws SignatureError for other keys. */
export function publicKey(jwk: unknown): PublicKey {
  const { kty, crv, x } = members(jwk);
  if (kty !== "OKP" || crv !== "Ed25519" || typeof x !== "string" || !KEY_BYTES.test(x)) {
    throw new SignatureError("The key is no public Ed25519 key in JWK form.");
  }
  return { kty, crv, x };
}

/** The fingerprint of a key: its thumbprint (RFC 7638), SHA-256 in base64url. */
export function fingerprint(key: PublicKey): string {
  const members = JSON.stringify({ crv: key.crv, kty: key.kty, x: key.x });
  return createHash("sha256").update(members).digest("base64url");
}

/**
 * Checks that `key` signed the 32 bytes `digest` for the purpose `typ`.
 * Throws SignatureError otherwise.
 */
export function verifyDigest(jws: string, digest: Uint8Array, typ: string, key: PublicKey): void {
  const [, protectedText, signature] = FORM.exec(jws) ?? [];
  if (protectedText === undefined || signature === undefined) {
    throw new SignatureError("The signature is no detached JWS.");
  }
  checkHeader(protectedText, typ, key);
  const signed = Buffer.concat([Buffer.from(`${protectedText}.`), digest]);
  const publicKeyObject = createPublicKey({ key: { ...key }, format: "jwk" });
  if (!verify(null, signed, publicKeyObject, Buffer.from(signature, "base64url"))) {
    throw new SignatureError("The signature does not belong to these bytes.");
  }
}

function checkHeader(text: string, typ: string, key: PublicKey): void {
  const header = members(decoded(text));
  const crit = header["crit"];
  if (header["alg"] !== "EdDSA" || header["b64"] !== false) {
    throw new SignatureError("The signature is not of the form EdDSA over raw bytes.");
  }
  if (!Array.isArray(crit) || crit.length !== 1 || crit[0] !== "b64") {
    throw new SignatureError("The signature demands extensions that are not known here.");
  }
  if (header["typ"] !== typ) {
    throw new SignatureError(`The signature is for another purpose than ${typ}.`);
  }
  if (header["kid"] !== fingerprint(key)) {
    throw new SignatureError("The signature is by another key than the pinned one.");
  }
}
