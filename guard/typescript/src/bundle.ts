/**
 * A bundle: the service's records of all endpoints, signed, so that look-ups are local. One zstd
 * frame of newline-delimited JSON: a header, then one array per endpoint, host or payTo, sorted by
 * key. Unknown members of the header and unknown trailing places of a record are ignored. A record is
 * found by bisection, and only its own line is parsed.
 */

import { createHash } from "node:crypto";
import { members } from "./json.js";
import { type Conduct, type EndpointRecord, readConduct, readRecord } from "./record.js";
import { type Resource, securedUrl } from "./resource.js";
import { Keyring, type PublicKey, verifyDigest } from "./signature.js";
import { decompress } from "./zstd.js";

/** The largest body that is read, in bytes. */
export const BODY_MAX = 32 * 1024 * 1024;
/** The largest content that is decompressed, in bytes. */
export const CONTENT_MAX = 128 * 1024 * 1024;

const KEY_PREFIX = "tollgauge:v2:";
const KEY_LENGTH = 22;
/** A placeholder in the path of a canonical resource: `{id}`, percent-encoded, or `:id`. */
const PLACEHOLDER = /%7B[^/]+?%7D|(?<=\/):[A-Za-z_][A-Za-z0-9_]*/;
/** A line begins with `["`, the key, and `",`. */
const LINE_MIN = 2 + KEY_LENGTH + 2;
const NEWLINE = 0x0a;

/** Bytes that are not a bundle; the message states the reason. */
export class BundleError extends Error {
  override readonly name = "BundleError";
}

interface Header {
  readonly policyVersion: number;
  /** Unix seconds at which the service knew this. */
  readonly asOf: number;
  readonly count: number;
  readonly variant: "all" | "avoid";
  /** The payTo addresses, which records name by index. */
  readonly payTo: readonly unknown[];
}

/** A verified bundle. */
export class Bundle {
  readonly header: Header;
  readonly #content: Buffer;
  readonly #start: number;

  private constructor(header: Header, content: Buffer, start: number) {
    this.header = header;
    this.#content = content;
    this.#start = start;
  }

  /**
   * Verifies the signature and reads the body: an unsigned body is not decompressed or parsed.
   * Throws SignatureError, BundleError, or what `decompress` throws.
   */
  static open(
    body: Uint8Array,
    signature: string,
    keys: PublicKey | Keyring,
    now = Math.floor(Date.now() / 1000),
  ): Bundle {
    if (body.length > BODY_MAX) {
      throw new BundleError(`The bundle is larger than ${BODY_MAX} bytes.`);
    }
    const digest = createHash("sha256").update(body).digest();
    const ring = keys instanceof Keyring ? keys : Keyring.pin(keys);
    verifyDigest(signature, digest, "tollgauge-bundle", ring, now);
    const content = decompress(body, CONTENT_MAX);
    const end = content.indexOf(NEWLINE);
    if (end === -1) throw new BundleError("The bundle has no header.");
    const header = readHeader(parsed(content.toString("utf8", 0, end)));
    checkOrder(content, end + 1, header.count);
    return new Bundle(header, content, end + 1);
  }

  /**
   * The record of a resource, or of the template that it matches, or null. A resource that was
   * requested by plain `http` is looked up as `https`: the bundle contains no other. With `tool`,
   * the resource is an MCP server, and the record is that of its tool.
   * Throws RecordError for a record that is not of the right form.
   */
  find(resource: Resource, tool: string | null = null): EndpointRecord | null {
    const url = securedUrl(resource);
    const line =
      tool === null
        ? (this.#line(keyOf(url)) ?? this.#templateLine(resource.host, url))
        : this.#line(keyOf(`${url}#tool=${escapedName(tool)}`));
    return line === null ? null : readRecord(parsed(line), this.header.payTo);
  }

  /** The record of `host:<host>` or `payto:<address>`, or null. Throws RecordError. */
  conduct(name: string): Conduct | null {
    const line = this.#line(keyOf(name));
    return line === null ? null : readConduct(parsed(line));
  }

  #templateLine(host: string, url: string): string | null {
    // Sorted, so that both guards choose the same of several templates.
    const patterns = [...(this.conduct(`host:${host}`)?.patterns ?? [])].sort();
    for (const pattern of patterns) {
      const line = matches(pattern, url) ? this.#line(keyOf(pattern)) : null;
      if (line !== null) return line;
    }
    return null;
  }

  /** The line of a key, by bisection between the starts of lines. */
  #line(key: Buffer): string | null {
    let low = this.#start;
    let high = this.#content.length;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const start = Math.max(low, this.#content.lastIndexOf(NEWLINE, middle - 1) + 1);
      const end = this.#content.indexOf(NEWLINE, start);
      const order = this.#content.compare(key, 0, KEY_LENGTH, start + 2, start + 2 + KEY_LENGTH);
      if (order === 0) return this.#content.toString("utf8", start, end);
      if (order < 0) low = end + 1;
      else high = start;
    }
    return null;
  }
}

/** The key of a name: a digest, which does not reveal the name. */
function keyOf(name: string): Buffer {
  const digest = createHash("sha256").update(KEY_PREFIX).update(name, "utf8").digest();
  return Buffer.from(digest.subarray(0, 16).toString("base64url"), "latin1");
}

/** Whether a URL fills in the placeholders of a template, each with part of a segment. */
function matches(pattern: string, url: string): boolean {
  const literals = pattern
    .split(PLACEHOLDER)
    .map((literal) => literal.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${literals.join("[^/]+")}$`).test(url);
}

function keyAt(content: Buffer, start: number): Buffer {
  return content.subarray(start + 2, start + 2 + KEY_LENGTH);
}

/** Bisection is right only where every line is one record, and each key is above the last. */
function checkOrder(content: Buffer, start: number, count: number): void {
  let lines = 0;
  let last: Buffer = Buffer.alloc(0);
  for (let at = start; at < content.length; lines += 1) {
    const end = content.indexOf(NEWLINE, at);
    if (end - at < LINE_MIN) throw new BundleError("A line of the bundle is broken.");
    const key = keyAt(content, at);
    if (key.compare(last) <= 0) throw new BundleError("The bundle is not sorted by key.");
    last = key;
    at = end + 1;
  }
  if (lines !== count) {
    throw new BundleError(`The bundle has ${lines} records and announces ${count}.`);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new BundleError("A line of the bundle is not JSON.");
  }
}

function readHeader(value: unknown): Header {
  const { format, policyVersion, asOf, count, variant, payTo } = members(value);
  if (format !== 2) throw new BundleError("The bundle has a format that is not known here.");
  if (
    !isCount(policyVersion) ||
    !isCount(asOf) ||
    !isCount(count) ||
    !Array.isArray(payTo) ||
    (variant !== "all" && variant !== "avoid")
  ) {
    throw new BundleError("The header of the bundle is not of the right form.");
  }
  return { policyVersion, asOf, count, variant, payTo };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** The name of a tool as the bundle writes it: all but RFC 3986's unreserved characters escaped. */
function escapedName(tool: string): string {
  const escape = (character: string): string => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(tool.replace(/\p{Surrogate}/gu, "?")).replace(/[!'()*]/g, escape);
}
