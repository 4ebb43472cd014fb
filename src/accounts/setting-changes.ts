/** Settings that differ, with both values as text: what a reload or a draft would change. */
import { isDeepStrictEqual } from "node:util";
import Type, { type Static } from "typebox";
import { fieldOf, isRecord } from "../objects.ts";
import { objectFor, orNull, text } from "./json-objects.ts";

export interface SettingChange {
  /** As in the configuration: `plans.student.base.credits`. */
  setting: string;
  /** Null: it is not set. */
  before: string | null;
  after: string | null;
}

const value = (when: string) => orNull(Type.String({ description: `the value ${when}` }));

export const settingChangeObject = objectFor<SettingChange>("SettingChange")({
  setting: [text, ({ setting }) => setting],
  before: [value("that is in use"), ({ before }) => before],
  after: [value("afterwards"), ({ after }) => after],
});

export type SettingChangeJson = Static<typeof settingChangeObject.schema>;

/** Returns the values that differ, by their places. */
export function settingChanges(before: unknown, after: unknown, place: string): SettingChange[] {
  if (isRecord(before ?? {}) && isRecord(after ?? {})) {
    const names = new Set([before, after].flatMap((value) => (isRecord(value) ? Object.keys(value) : [])));
    return [...names].flatMap((name) =>
      settingChanges(fieldOf(before, name), fieldOf(after, name), place === "" ? name : `${place}.${name}`),
    );
  }
  if (isDeepStrictEqual(before, after)) return [];
  return [{ setting: place, before: textOf(before), after: textOf(after) }];
}

function textOf(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value)) return String(value);
  if (value.length === 0) return null;
  return value.map((item) => (isRecord(item) ? JSON.stringify(item) : String(item))).join(", ");
}
