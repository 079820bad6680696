/** Where the bundle comes from: a URL, a file or bytes; and when it is downloaded again. */

import { createHash, randomBytes } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { BODY_MAX, Bundle, BundleError } from "./bundle.js";
import { STALE_S } from "./decision.js";
import { members } from "./json.js";
import { Keyring, type PinnedKey, SignatureError } from "./signature.js";

/** A body and the value of its header `Tollgauge-Signature`. */
export interface SignedBody {
  readonly body: Uint8Array;
  readonly signature: string;
}

/**
 * Where a bundle is: a URL; the path of a file, whose signature is in the file of the same name
 * with `.jws` at its end; or the bytes themselves.
 */
export type BundleLocation = string | URL | SignedBody;

/** Seconds for which a bundle is not asked for again. */
const FRESH_S = 3600;
/** Seconds after a failure before the next try. */
const RETRY_S = 60;
/** Milliseconds for which a download may take; a payment waits for less. */
const DOWNLOAD_MS = 30_000;
const JWKS_MAX = 1_048_576;
const SIGNATURE_HEADER = "tollgauge-signature";

export class BundleSource {
  /** Why the last try failed, or null. */
  problem: string | null = null;
  #bundle: Bundle | null = null;
  #etag = "";
  /** If the clock was set back, the service is also queried again. */
  #triedAt = 0;
  #pause = 0;
  #loading: Promise<void> | null = null;
  readonly #location: BundleLocation;
  #keys: Keyring;
  /** The JWK set that was published last. */
  #jwks: unknown = {};
  /** The file that keeps the download; the Python guard reads the same one. */
  readonly #cache: string;
  readonly #timeoutMs: number;

  /**
   * `cache` is the folder that keeps the download of a URL.
   * Throws SignatureError for values that are not keys, and TypeError without a location or for a
   * fingerprint without a URL.
   */
  constructor(
    location: BundleLocation,
    keys: PinnedKey | readonly PinnedKey[],
    cache: string,
    timeoutMs: number,
  ) {
    if (!location) throw new TypeError("No bundle was named: `bundle` is a URL or the path of a file.");
    this.#location = isWebAddress(location) ? new URL(location) : location;
    this.#keys = Keyring.pin(keys);
    const name = createHash("sha256").update(String(location)).digest("hex").slice(0, 32);
    this.#cache = join(cache, `${name}.bundle`);
    this.#timeoutMs = timeoutMs;
    if (this.#keys.isIncomplete && !(this.#location instanceof URL)) {
      throw new TypeError("A fingerprint needs a bundle at a URL; give the public JWK as the key.");
    }
  }

  /**
   * The bundle at `now` (unix seconds), or null while there is none. Without one, or with a stale one,
   * it waits for a newer one, at most `timeoutMs`; otherwise the download does not delay payments.
   * Never throws.
   */
  async current(now: number): Promise<Bundle | null> {
    if (Math.abs(now - this.#triedAt) >= this.#pause) this.#loading ??= this.#load(now);
    const asOf = this.#bundle?.header.asOf ?? 0;
    if (now - asOf > STALE_S && this.#loading !== null) await this.#wait(this.#loading);
    return this.#bundle;
  }

  async #wait(loading: Promise<void>): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, this.#timeoutMs)));
    const isLate = await Promise.race([loading.then(() => false), late.then(() => true)]);
    clearTimeout(timer);
    if (isLate) this.problem ??= `It did not come within ${this.#timeoutMs} ms.`;
  }

  async #load(now: number): Promise<void> {
    this.#triedAt = now;
    try {
      if (this.#bundle === null) await this.#loadCache();
      await this.#refresh();
      this.problem = null;
      this.#pause = FRESH_S;
    } catch (error) {
      this.problem = messageOf(error);
      this.#pause = RETRY_S;
    } finally {
      this.#loading = null;
    }
  }

  async #refresh(): Promise<void> {
    const location = this.#location;
    if (location instanceof URL) return this.#download(location);
    const signed = typeof location === "string" ? await readPair(location) : location;
    this.#use(signed, this.#triedAt);
  }

  async #download(url: URL): Promise<void> {
    const signal = AbortSignal.timeout(Math.max(DOWNLOAD_MS, this.#timeoutMs));
    const headers = this.#etag === "" ? {} : { "if-none-match": this.#etag };
    const answer = await fetched(url, { headers, signal });
    if (answer.status === 304 && this.#etag !== "") return;
    const body = await bodyOf(answer, BODY_MAX);
    const signature = answer.headers.get(SIGNATURE_HEADER);
    if (signature === null) throw new SignatureError("The bundle is not signed.");
    await this.#fetchKeys(url, signal);
    if (!this.#use({ body, signature }, this.#triedAt)) return;
    this.#etag = answer.headers.get("etag") ?? "";
    await this.#writeCache({ body, signature });
  }

  /** Accepts the successors of the pinned keys, and the end of retired ones. */
  async #fetchKeys(url: URL, signal: AbortSignal): Promise<void> {
    try {
      const answer = await fetched(new URL("/.well-known/jwks.json", url), { signal });
      this.#follow(JSON.parse((await bodyOf(answer, JWKS_MAX)).toString()), this.#bundle !== null);
    } catch (error) {
      // Keys that were pinned whole need nothing from the service.
      if (this.#keys.isIncomplete) throw error;
    }
  }

  #follow(jwks: unknown, isKnown: boolean): void {
    this.#jwks = jwks;
    this.#keys = this.#keys.follow(jwks, this.#triedAt, isKnown);
  }

  /** Uses a bundle, unless the one in use is newer: an attacker can replay an old one. */
  #use({ body, signature }: SignedBody, now: number): boolean {
    const bundle = Bundle.open(body, signature, this.#keys, now);
    const { variant } = bundle.header;
    // By the other variant, which the same key signs, every good endpoint would be unknown.
    if (variant !== (variantAt(this.#location) ?? variant)) {
      throw new BundleError(`The bundle is the variant "${variant}", which its name does not state.`);
    }
    const isNewer = bundle.header.asOf >= (this.#bundle?.header.asOf ?? 0);
    if (isNewer) this.#bundle = bundle;
    return isNewer;
  }

  /** Uses the cached file. A file that is broken or of another key counts as missing. */
  async #loadCache(): Promise<void> {
    try {
      if (!(this.#location instanceof URL)) return;
      const { jwks, ...signed } = await readCache(this.#cache);
      // This file was written here: its keys were accepted before.
      this.#follow(jwks, true);
      this.#use(signed, this.#triedAt);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") this.problem = messageOf(error);
    }
  }

  /** A line of JSON with the signature and the JWK set, then the body; replaced in one step. */
  async #writeCache({ body, signature }: SignedBody): Promise<void> {
    const first = JSON.stringify({ signature, etag: this.#etag, jwks: this.#jwks });
    const part = `${this.#cache}.${randomBytes(6).toString("hex")}`;
    try {
      await mkdir(dirname(this.#cache), { recursive: true, mode: 0o700 });
      await writeFile(part, Buffer.concat([Buffer.from(`${first}\n`), body]));
      await rename(part, this.#cache);
    } catch (error) {
      // The bundle is in use all the same: only the next start without a network misses it.
      process.emitWarning(`The bundle was not kept. ${messageOf(error)}`, "BundleNotKept");
    }
  }
}

/** The variant in the name of a bundle; null for bytes, which have no name. */
function variantAt(location: BundleLocation): "all" | "avoid" | null {
  const path = location instanceof URL ? location.pathname : location;
  if (typeof path !== "string") return null;
  return /(?:^|\/)[^/.]*avoid(\.[^/]*)?\/*$/.test(path) ? "avoid" : "all";
}

export function isWebAddress(location: BundleLocation): location is string | URL {
  return (
    location instanceof URL || (typeof location === "string" && /^https?:\/\//i.test(location))
  );
}

async function readCache(path: string): Promise<SignedBody & { readonly jwks: unknown }> {
  const content = await readFile(path);
  const end = content.indexOf(0x0a);
  const { signature, jwks } = members(JSON.parse(content.toString("utf8", 0, end)));
  return { body: content.subarray(end + 1), signature: String(signature), jwks };
}

async function readPair(path: string): Promise<SignedBody> {
  const [body, signature] = await Promise.all([readFile(path), readFile(`${path}.jws`, "utf8")]);
  return { body, signature: signature.trim() };
}

/** The message of an error as a sentence. */
function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.endsWith(".") ? message : `${message}.`;
}

/** The answer of a URL, which must not redirect. Throws BundleError if there is none. */
async function fetched(url: URL, options: RequestInit): Promise<Response> {
  try {
    // Not "error", which Workers do not have: a redirect is an answer that is not ok.
    return await fetch(url, { ...options, redirect: "manual" });
  } catch (error) {
    const { name, cause } = error as Error;
    const { code, message } = members(cause);
    const why = String(code ?? message ?? name);
    throw new BundleError(`${url.origin}${url.pathname} does not answer (${why}).`);
  }
}

/** The body of a good answer. Throws BundleError for another status, and for more than `limit`. */
async function bodyOf(answer: Response, limit: number): Promise<Buffer> {
  const place = answer.url.replace(/[?#].*$/s, "");
  if (!answer.ok || answer.body === null) {
    throw new BundleError(`${place} answered with status ${answer.status}.`);
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of answer.body) {
    size += chunk.length;
    if (size > limit) throw new BundleError(`${place} sent more than ${limit} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
