/** JSON that others wrote: every value may be anything. */

/** The members of a value from JSON; none where it is no object. */
export function members(value: unknown): Readonly<Record<string, unknown>> {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : {};
}

/** The value in a JSON text, or null where it is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The value in the base64 of a JSON text, or null where it is none. */
export function decoded(base64: string): unknown {
  return parsed(Buffer.from(base64, "base64").toString("utf8"));
}
