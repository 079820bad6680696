/** The signature of a bundle: a detached JWS (RFC 7515, RFC 7797) by an Ed25519 key (RFC 8037). */

import { createHash, createPublicKey, verify } from "node:crypto";
import { decoded, members } from "./json.js";

/** A public Ed25519 key as a JWK (RFC 8037 section 2). */
export interface PublicKey {
  readonly kty: "OKP";
  readonly crv: "Ed25519";
  readonly x: string;
  /** Unix seconds; later signatures of a retired key are not accepted. */
  readonly exp?: number;
}

/** A pinned key: the public JWK, also as its JSON text, or its fingerprint (RFC 7638). */
export type PinnedKey = PublicKey | string;

const SUCCESSION_TYPE = "tollgauge-succession";
const HINT = "Give the operator's public JWK, or its fingerprint (RFC 7638) of 43 characters.";
const KEY_BYTES = /^[A-Za-z0-9_-]{43}$/;
const FORM = /^([A-Za-z0-9_-]{1,4096})\.\.([A-Za-z0-9_-]{86})$/;

/** A signature, or a key, that cannot be trusted; the message states the reason. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/** The public key in a JWK; other members are ignored. Throws SignatureError for other keys. */
export function publicKey(jwk: unknown): PublicKey {
  const { kty, crv, x, exp } = members(jwk);
  if (kty !== "OKP" || crv !== "Ed25519" || typeof x !== "string" || !KEY_BYTES.test(x)) {
    throw new SignatureError("The key is not a public Ed25519 key in JWK form.");
  }
  return { kty, crv, x, ...(Number.isSafeInteger(exp) ? { exp: Number(exp) } : {}) };
}

/** The fingerprint of a key: its thumbprint (RFC 7638), SHA-256 in base64url. */
export function fingerprint(key: PublicKey): string {
  const members = JSON.stringify({ crv: key.crv, kty: key.kty, x: key.x });
  return createHash("sha256").update(members).digest("base64url");
}

/** The keys whose bundles are accepted, by fingerprint: pinned by the owner, or their successors. */
export class Keyring {
  readonly #keys: ReadonlyMap<string, PublicKey | null>;

  private constructor(keys: ReadonlyMap<string, PublicKey | null>) {
    this.#keys = keys;
  }

  /** The keys that the owner pinned. Throws SignatureError for values that are not keys. */
  static pin(keys: PinnedKey | readonly PinnedKey[]): Keyring {
    const listed: readonly PinnedKey[] = Array.isArray(keys) ? keys : [keys as PinnedKey];
    if (listed.length === 0) throw new SignatureError(`No key was pinned. ${HINT}`);
    return new Keyring(new Map(listed.map(pinOne)));
  }

  /** Whether only the fingerprint of a pinned key is known. */
  get isIncomplete(): boolean {
    return [...this.#keys.values()].includes(null);
  }

  /** The accepted key with a fingerprint. Throws SignatureError. */
  find(kid: unknown, now: number): PublicKey {
    const key = this.#keys.get(String(kid));
    if (key === undefined) {
      throw new SignatureError("The signature is by another key than the pinned ones.");
    }
    if (key === null) throw new SignatureError("Only the fingerprint of the key is known.");
    if (key.exp !== undefined && now > key.exp) {
      throw new SignatureError("The key that signed the bundle is retired.");
    }
    return key;
  }

  /**
   * Completes pinned fingerprints from a JWK set (RFC 7517), and adds the successors. A succession is
   * a compact JWS in the member `successions`, signed by an accepted key. `isKnown`: a bundle was
   * accepted before; a new installation accepts current keys only.
   */
  follow(document: unknown, now: number, isKnown: boolean): Keyring {
    const listed = new Map<string, PublicKey>();
    const { keys: published, successions } = members(document);
    for (const jwk of Array.isArray(published) ? (published as unknown[]) : []) {
      try {
        const key = publicKey(jwk);
        listed.set(fingerprint(key), key);
      } catch {
        // A set may contain keys of other kinds.
      }
    }
    const keys = new Map<string, PublicKey | null>();
    for (const [name, key] of this.#keys) keys.set(name, completed(key, listed.get(name)));
    const statements = Array.isArray(successions) ? (successions as unknown[]) : [];
    for (let isChanged = true; isChanged; ) {
      isChanged = false;
      for (const statement of statements) {
        const successor = readSuccession(statement, keys, now, isKnown);
        const name = successor === null ? null : fingerprint(successor);
        if (name === null || keys.has(name)) continue;
        keys.set(name, completed(successor, listed.get(name)));
        isChanged = true;
      }
    }
    return new Keyring(keys);
  }
}

/**
 * Checks that an accepted key signed the 32 bytes `digest` for the purpose `typ`.
 * Throws SignatureError otherwise.
 */
export function verifyDigest(
  jws: string,
  digest: Uint8Array,
  typ: string,
  keys: Keyring,
  now: number,
): void {
  const [, protectedText, signature] = FORM.exec(jws) ?? [];
  if (protectedText === undefined || signature === undefined) {
    throw new SignatureError("The signature is not a detached JWS.");
  }
  const key = keys.find(checkHeader(protectedText, typ), now);
  const signed = Buffer.concat([Buffer.from(`${protectedText}.`), digest]);
  if (!isSignedBy(key, signed, signature)) {
    throw new SignatureError("The signature does not belong to these bytes.");
  }
}

function isSignedBy({ kty, crv, x }: PublicKey, signed: Uint8Array, signature: string): boolean {
  const key = createPublicKey({ key: { kty, crv, x }, format: "jwk" });
  return verify(null, signed, key, Buffer.from(signature, "base64url"));
}

function pinOne(key: PinnedKey): [string, PublicKey | null] {
  if (typeof key === "string" && KEY_BYTES.test(key)) return [key, null];
  try {
    const jwk: unknown = typeof key === "string" ? JSON.parse(key) : key;
    if ("d" in members(jwk)) throw new SignatureError("The key is a private one. Keep it secret.");
    const pinned = publicKey(jwk);
    return [fingerprint(pinned), pinned];
  } catch (error) {
    const isKnown = error instanceof SignatureError;
    const why = isKnown ? error.message : "The key is not a public Ed25519 key in JWK form.";
    throw new SignatureError(`${why} ${HINT}`);
  }
}

/** A key with the service's data about it: the key itself, and the time when it was retired. */
function completed(key: PublicKey | null, listed: PublicKey | undefined): PublicKey | null {
  if (listed === undefined) return key;
  return { ...listed, ...key, ...(listed.exp === undefined ? {} : { exp: listed.exp }) };
}

/** The successor that an accepted key names, or null if the statement is not valid. */
function readSuccession(
  statement: unknown,
  keys: ReadonlyMap<string, PublicKey | null>,
  now: number,
  isKnown: boolean,
): PublicKey | null {
  const [protectedText = "", payload = "", signature = "", ...more] = String(statement).split(".");
  const { alg, typ, kid } = members(decoded(protectedText));
  const { iat, successor } = members(decoded(payload));
  const key = keys.get(String(kid));
  if (more.length > 0 || alg !== "EdDSA" || typ !== SUCCESSION_TYPE) return null;
  if (key === undefined || key === null || !Number.isSafeInteger(iat)) return null;
  const { exp } = key;
  if (exp !== undefined && now > exp && (!isKnown || Number(iat) > exp)) return null;
  try {
    const signed = Buffer.from(`${protectedText}.${payload}`);
    return isSignedBy(key, signed, signature) ? publicKey(successor) : null;
  } catch {
    return null;
  }
}

/** The key ID in a header that is of the right form. Throws SignatureError. */
function checkHeader(text: string, typ: string): unknown {
  const header = members(decoded(text));
  const crit = header["crit"];
  if (header["alg"] !== "EdDSA" || header["b64"] !== false) {
    throw new SignatureError("The signature is not of the form EdDSA over raw bytes.");
  }
  if (!Array.isArray(crit) || crit.length !== 1 || crit[0] !== "b64") {
    throw new SignatureError("The signature demands unknown extensions.");
  }
  if (header["typ"] !== typ) {
    throw new SignatureError(`The signature is for another purpose than ${typ}.`);
  }
  return header["kid"];
}
