/** JSON that others wrote: every value may be anything. */

/** The members of a value from JSON, or an empty object if it is not an object. */
export function members(value: unknown): Readonly<Record<string, unknown>> {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : {};
}

/** The value of a JSON text, or null if the text is not valid. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The value of a JSON text in base64, or null if it is not valid. */
export function decoded(base64: string): unknown {
  return parsed(Buffer.from(base64, "base64").toString("utf8"));
}
