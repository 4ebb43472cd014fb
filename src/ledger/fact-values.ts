/**
 * The values of facts, as JSON in the terms of the API: `expiresMs` is `expires_at`, in ISO 8601.
 * Names and times convert both ways, so a new field needs no code here. Pure.
 */
import { defined, isRecord } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import type { KeySettings, NewKey } from "./operations.ts";
import type { AccountState } from "./rows.ts";

/** What the values of a fact can be, as fields. */
export interface FactFields extends Omit<KeySettings, "rotation">, Partial<Pick<NewKey, "actsFor">> {
  plan?: string;
  nextPlan?: string | null;
  /** When a plan comes. Absent: time has brought it. */
  at?: "refresh" | "now" | "new_window";
  state?: AccountState;
  endsMs?: EpochMs | null;
  rotation?: { overlap: string | null };
  reason?: string;
}

/** What an operation on a key has led to. */
interface KeyOutcomeFields {
  /** Of caps by the calendar that took the zone of the plan. */
  timezone?: string;
  /** The beginning of the SHA-256 of a new secret. */
  secret?: string;
  oldUntilMs?: EpochMs | null;
}

/** Returns the text of fields, by name and without those that are undefined. */
export function factText(fields: object): string {
  return JSON.stringify(inTerms(fields));
}

/** Returns the fields of a text. Throws a `SyntaxError` if it is none of an object. */
export function factFields(text: string | null): FactFields {
  return parsed(text);
}

export function outcomeFields(text: string | null): KeyOutcomeFields {
  return parsed(text);
}

function parsed(text: string | null) {
  if (text === null) return {};
  const fields = JSON.parse(text, (_, value: unknown) => (isRecord(value) ? camelCased(value) : value));
  if (!isRecord(fields)) throw new SyntaxError("a fact has an object of values");
  return fields;
}

function inTerms(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inTerms);
  if (!isRecord(value)) return value;
  const values = Object.entries(defined(value)).map(([name, each]) => {
    return [termOf(name), name.endsWith("Ms") ? isoOf(each) : inTerms(each)] as const;
  });
  return Object.fromEntries(values.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

/** Returns the name of a field in the API. */
export function termOf(name: string): string {
  return name.endsWith("Ms") ? `${snakeCased(name.slice(0, -2))}_at` : snakeCased(name);
}

/** A damaged row can have a number that is no time. */
function isoOf(value: unknown): unknown {
  if (typeof value !== "number") return value;
  const time = new Date(value);
  return Number.isNaN(time.getTime()) ? value : time.toISOString();
}

function camelCased(values: Record<string, unknown>): Record<string, unknown> {
  const fields = Object.entries(values).map(([name, value]) => {
    if (!name.endsWith("_at")) return [camel(name), value] as const;
    return [`${camel(name.slice(0, -3))}Ms`, typeof value === "string" ? Date.parse(value) : value] as const;
  });
  return Object.fromEntries(fields);
}

export function snakeCased(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
