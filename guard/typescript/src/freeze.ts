/** Data that cannot be changed any more. */

import { types } from "node:util";

/**
 * Freezes a value from JSON, with all that it holds. False, and perhaps half frozen, for what is
 * not plain data: a proxy, an accessor or an object of a class may say something else next time.
 */
export function freeze(value: unknown): boolean {
  if (typeof value === "function") return false;
  if (typeof value !== "object" || value === null) return true;
  if (types.isProxy(value) || !isPlain(value)) return false;
  Object.freeze(value);
  const properties = Object.values(Object.getOwnPropertyDescriptors(value));
  return properties.every((property) => "value" in property && freeze(property.value));
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === Array.prototype || prototype === null;
}
