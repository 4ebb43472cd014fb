/**
 * Optional properties: leaves out those without a value, as `exactOptionalPropertyTypes`
 * requires.
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
