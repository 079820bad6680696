/** Data that cannot be changed any more. */

import { types } from "node:util";

/**
 * Freezes a value from JSON and its members. Returns false for values that are not plain data, which
 * may then be partly frozen: a proxy, an accessor or an object of a class may change its value.
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
