/**
 * What the journal says about keys, from which the audit computes them again. Of secrets it has
 * the beginning of their SHA-256. Pure.
 */
import { defined, fieldOf } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import { cappedFields, type KeyCap, uncapped } from "./cap-rows.ts";
import { type CapState, capStateOf, counterAt, isSameCap, replacedCaps } from "./caps.ts";
import { type FactFields, factText, outcomeFields } from "./fact-values.ts";
import type { CapSettings, KeySettings, NewKey } from "./operations.ts";
import type { Refused } from "./refusals.ts";
import { countFields, type JournalRow, type KeyRow, keyColumns, settingsIn, uncounted } from "./rows.ts";
import { isCalendarPeriod, isPeriod, isTimezone } from "./windows.ts";

/** Hexadecimal digits of the SHA-256 of a secret that the journal has. */
const digits = 32;

function secretFact(hash: string): string {
  return hash.slice(0, digits);
}

/** Returns the fields alone that the creator of a key chooses. */
export function newKeyOf(row: NewKey): NewKey {
  const { id, account, hash, lastFour, actsFor } = row;
  return { id, account, hash, lastFour, ...settingsIn(row), actsFor };
}

/** The values of a change of a key: what the operation names, without the secret. */
export function changeFact(set: KeySettings): string {
  const { rotation, ...named } = set;
  return factText({ ...named, rotation: rotation && { overlap: rotation.overlap } });
}

/** The values that a change of the key replaces. */
export function replacedFact(key: KeyRow, { rotation: _, ...set }: FactFields): string {
  const names = Object.keys(defined(set));
  const values = names.map((name) => [name, name === "caps" ? capsFact(key) : fieldOf(key, name)]);
  return factText(Object.fromEntries(values));
}

function capsFact({ caps }: KeyRow): object[] {
  return caps.map(({ sinceMs: _, ...cap }) => cap);
}

/** What a change has led to: the zone that its caps took from the plan, and a new secret. */
export function outcomeFact(
  { hash, oldUntilMs }: KeyRow,
  { timezone, hasNewSecret }: { timezone: string | undefined; hasNewSecret: boolean },
): string | null {
  const secret = hasNewSecret ? { secret: secretFact(hash), oldUntilMs } : {};
  return hasNewSecret || timezone !== undefined ? factText({ timezone, ...secret }) : null;
}

/** Returns the zone that these caps take from the plan. Undefined: none. */
export function zoneFor(caps: readonly CapSettings[] | undefined, planZone = "UTC"): string | undefined {
  const needsZone = caps?.some(({ align, timezone }) => align === "calendar" && timezone === undefined);
  return needsZone === true ? planZone : undefined;
}

/**
 * Completes the caps that replace those of a key. `zone` is for windows of the calendar without
 * one.
 */
export function capsAfter(
  before: readonly KeyCap[],
  settings: readonly CapSettings[],
  { zone = "UTC", atMs }: { zone: string | undefined; atMs: EpochMs },
): KeyCap[] | Refused<"no_calendar_period" | "cap_twice"> {
  const caps = settings.map(({ every, align = "opening", name = every, models = ["*"], ...cap }) => {
    const timezone = align === "opening" ? "UTC" : (cap.timezone ?? zone);
    return { ...cap, name, every, align, timezone, models };
  });
  for (const [n, cap] of caps.entries()) {
    const { name, every, align } = cap;
    if (align === "calendar" && !isCalendarPeriod(every)) return { kind: "no_calendar_period", name, every };
    if (caps.slice(0, n).some((each) => isSameCap(each, cap))) return { kind: "cap_twice", name };
  }
  return replacedCaps(before, caps, atMs);
}

/**
 * Applies an entry with its values to the keys of its account. Their hashes are those of the
 * journal. Returns what is wrong with it, or null.
 */
export function applyKeyFact(keys: Map<string, KeyRow>, entry: JournalRow, after: FactFields): string | null {
  const { account, atMs, subject: id } = entry;
  if (id === null) return "names no key";
  const known = keys.get(id);
  const { rotation: _, ...fields } = after;
  const { timezone, secret, oldUntilMs = null } = outcomeFields(entry.outcome);
  if (known === undefined && secret === undefined) return "changes a key that is not there";
  const before = known === undefined ? null : replacedFact(known, fields);
  if (entry.before !== before) return "says that something else was there before";
  const key: KeyRow = known ?? { ...blankKey, id, account, createdMs: atMs };
  keys.set(id, key);
  const { caps: settings, ...set } = fields;
  Object.assign(key, set);
  if (settings !== undefined) {
    const zones = timezone === undefined ? [] : [timezone];
    if (!areCaps(settings) || !zones.every(isTimezone)) return "sets caps that no key can have";
    if ((zoneFor(settings) === undefined) !== (timezone === undefined))
      return "has another zone than its caps";
    const caps = capsAfter(key.caps, settings, { zone: timezone, atMs });
    if ("kind" in caps) return "sets caps that no key can have";
    key.caps = caps;
  }
  if (secret !== undefined) {
    key.oldHash = known === undefined ? null : key.hash;
    key.oldUntilMs = oldUntilMs;
    key.hash = secret;
  }
  return null;
}

/** Reports whether caps of the journal can be counted: windows need a period and a zone. */
function areCaps(settings: readonly CapSettings[]): boolean {
  return (
    Array.isArray(settings) &&
    settings.every(({ every, timezone = "UTC", models = [] }) => {
      return isPeriod(every) && isTimezone(timezone) && Array.isArray(models);
    })
  );
}

/** A key that was never used, changed or revoked, without caps. */
export const unusedKey = {
  revokedMs: null,
  lastUsedMs: null,
  ...uncounted,
  caps: [],
  ...uncapped,
  oldHash: null,
  oldUntilMs: null,
} as const satisfies Partial<KeyRow>;

/** A key before its first fact: nobody has limited it. */
export const blankKey: Omit<KeyRow, "id" | "account" | "createdMs"> = {
  ...unusedKey,
  hash: "",
  lastFour: "",
  ...settingsIn({}),
  actsFor: null,
};

/** The fields of a key that its facts do not determine. Charges determine its counters. */
const noFacts = ["id", "account", "lastFour", "lastUsedMs", ...countFields, ...cappedFields];
const factsOfKey = Object.keys(keyColumns).filter((field) => !noFacts.includes(field));

/** The fields of a key that its facts determine, as texts. */
export function keyFactsOf(key: KeyRow): (readonly [field: string, value: string])[] {
  const row = { ...key, hash: secretFact(key.hash), oldHash: key.oldHash && secretFact(key.oldHash) };
  return factsOfKey.map((field) => {
    const value = fieldOf(row, field);
    if (value === null) return [field, "none"] as const;
    return [field, typeof value === "object" ? factText({ value }) : String(value)] as const;
  });
}

/** Returns the key as it is then: its caps in their windows, and no old secret that has ended. */
export function keyAt(read: KeyRow, atMs: EpochMs): KeyRow {
  const key = { ...read, counters: read.caps.map((cap) => counterAt(read, cap, atMs)) };
  const hasEnded = key.revokedMs !== null || (key.oldUntilMs !== null && key.oldUntilMs <= atMs);
  return hasEnded ? { ...key, oldHash: null, oldUntilMs: null } : key;
}

/** Returns the states of its caps. The key is as `keyAt` returns it. */
export function capStatesOf(key: KeyRow): (CapState & Pick<KeyCap, "byOperator">)[] {
  return key.caps.map((cap, n) => {
    const state = capStateOf(key, cap, key.counters[n]?.fromMs ?? cap.sinceMs);
    return { ...state, byOperator: cap.byOperator };
  });
}
