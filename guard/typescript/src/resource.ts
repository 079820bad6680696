/**
 * A URL in the one form by which the bundle knows it: scheme, host (lower case, IDNA A-labels, no
 * trailing dot), the port if it is not the scheme's default, and path (percent-encoding
 * normalised, dot segments removed, case kept); no query and no fragment (RFC 3986 section 6.2).
 * guard/cases/resources.json holds cases that the service and both guards agree on.
 */

/** A URL in canonical form. */
export interface Resource {
  /** `https`, `http`, or `mcp`, by which the 402 of an MCP tool names it: `mcp://tool/NAME`. */
  readonly scheme: "https" | "http" | "mcp";
  readonly host: string;
  readonly port: number;
  /** Scheme, host, and the port if it is not the scheme's default. */
  readonly origin: string;
  /** The canonical text. A bundle contains its hash. */
  readonly url: string;
}

/** The longest URL in characters. */
const URL_MAX = 8192;
const DEFAULT_PORTS = { https: 443, http: 80, mcp: 0 };
/** A scheme, and an authority that holds no user information and no escape. */
const FORM = /^(https?|mcp):\/\/[^/?#@%]+(?:[/?#]|$)/i;
/** Spaces, controls, backslashes, and invisible characters (Default_Ignorable_Code_Point). */
const BAD_CHARACTER = /[\x00-\x20\x7f-\xa0\\\p{Z}\p{Surrogate}\p{Default_Ignorable_Code_Point}]/u;
/** RFC 3986 section 2.3. */
const UNRESERVED = /^[A-Za-z0-9._~-]$/;
const ESCAPE = /(%[0-9A-Fa-f]{2})/;
/** Escapes of delimiters, which some servers decode before they route a request. */
const ESCAPED_DELIMITER = /%(?:23|25|2F|3B|3F)/g;
/** Characters that are escaped in a path: all except `pchar` of RFC 3986 section 3.3 and "/". */
const NOT_IN_A_PATH = /[^A-Za-z0-9/:@!$&'()*+,;=._~-]/gu;

const CACHE_MAX = 256;
/** The steps of a payment parse the same URL about twenty times. */
const cache = new Map<string, Resource | null>();

/** The canonical form of a URL, or null for a text that is not a URL of the three schemes. */
export function parseResource(text: unknown): Resource | null {
  if (typeof text !== "string" || text.length > URL_MAX) return null;
  let resource = cache.get(text);
  if (resource === undefined) {
    if (cache.size >= CACHE_MAX) cache.clear();
    resource = parse(text);
    cache.set(text, resource);
  }
  return resource;
}

function parse(text: string): Resource | null {
  const url = BAD_CHARACTER.test(text) || !FORM.test(text) ? null : URL.parse(text);
  if (url === null) return null;
  const scheme = url.protocol.slice(0, -1) as Resource["scheme"];
  const host = url.hostname.toLowerCase().replace(/\.$/, "");
  if (host === "" || host.endsWith(".")) return null;
  const port = url.port === "" ? DEFAULT_PORTS[scheme] : Number(url.port);
  const shownPort = url.port === "" ? "" : `:${url.port}`;
  const origin = `${scheme}://${host}${shownPort}`;
  return { scheme, host, port, origin, url: `${origin}${canonicalPath(url.pathname || "/")}` };
}

/**
 * Other paths of the same host by which a server may know the resource, without itself: without
 * parameters (`;x=1`), repeated slashes and escaped delimiters, in lower case, with and without a
 * trailing slash. guard/cases/variants.json has them for every language.
 */
export function variants(resource: Resource): string[] {
  const { origin, url } = resource;
  const path = url.slice(origin.length);
  const spellings = [path, plainPath(path)].flatMap((one) => [one, one.toLowerCase()]);
  const bare = new Set(spellings.map((one) => one.replace(/\/+$/, "")));
  const paths = [...bare].flatMap((one) => [one, `${one}/`]);
  const found = new Set(paths.map((one) => parseResource(origin + one)?.url ?? url));
  found.delete(url);
  return [...found];
}

/** A path without parameters, repeated slashes, and escapes of `#`, `%`, `/`, `;` and `?`. */
function plainPath(path: string): string {
  const decoded = path.replace(ESCAPED_DELIMITER, (escape) => decodeURIComponent(escape));
  return decoded
    .replace(/[?#].*$/s, "")
    .replace(/;[^/]*/g, "")
    .replace(/\/{2,}/g, "/");
}

/**
 * Whether both are at one host and port. An `http` URL on its default port counts as `https`:
 * sellers behind a TLS proxy do not know that the client uses TLS.
 */
export function namesHostOf(claimed: Resource, asked: Resource): boolean {
  if (claimed.host !== asked.host) return false;
  const isSame = claimed.scheme === asked.scheme && claimed.port === asked.port;
  return isSame || securedPort(claimed) === securedPort(asked);
}

/** The canonical text with `https` in place of `http` on its default port. */
export function securedUrl(resource: Resource): string {
  return isPlain(resource) ? resource.url.replace(/^http:/, "https:") : resource.url;
}

function isPlain(resource: Resource): boolean {
  return resource.scheme === "http" && resource.port === DEFAULT_PORTS.http;
}

function securedPort(resource: Resource): number {
  return isPlain(resource) ? DEFAULT_PORTS.https : resource.port;
}

/** RFC 3986 section 6.2.2.2. The parser has removed dot segments and escaped non-ASCII characters. */
function canonicalPath(path: string): string {
  return path
    .split(ESCAPE)
    .map((piece, index) => (index % 2 === 1 ? canonicalEscape(piece) : escaped(piece)))
    .join("");
}

function canonicalEscape(escape: string): string {
  const character = String.fromCharCode(Number.parseInt(escape.slice(1), 16));
  return UNRESERVED.test(character) ? character : escape.toUpperCase();
}

function escaped(text: string): string {
  return text.replace(
    NOT_IN_A_PATH,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`,
  );
}
