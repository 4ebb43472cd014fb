/**
 * Plain objects: without the optional properties that have no value, as
 * `exactOptionalPropertyTypes` requires, and as values of unknown origin.
 */

/** Returns the properties whose value is neither null nor undefined. */
export function given<T extends object>(values: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const kept: { [K in keyof T]?: NonNullable<T[K]> } = {};
  for (const name in values) {
    const value = values[name];
    if (value !== null && value !== undefined) kept[name] = value;
  }
  return kept;
}

/** Returns the properties whose value is not undefined. */
export function defined<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const kept: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const name in values) {
    const value = values[name];
    if (isDefined(value)) kept[name] = value;
  }
  return kept;
}

function isDefined<T>(value: T): value is Exclude<T, undefined> {
  return value !== undefined;
}

/** Returns the value of a field, or undefined. No name of `Object.prototype` is looked for. */
export function fieldOf(value: unknown, name: string): unknown {
  return isRecord(value) ? value[name] : undefined;
}

/** Returns whether a parsed value is an object with properties. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
