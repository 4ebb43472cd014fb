/** Settings that differ, with both values as text: what a reload or a draft would change. */
import { isDeepStrictEqual } from "node:util";
import Type, { type Static } from "typebox";
import { objectFor, orNull, text } from "../accounts/json-objects.ts";
import type { GrantedJson } from "../accounts/plan-objects.ts";
import { grantedCapText } from "../accounts/plan-text.ts";
import { fieldOf, isRecord } from "../objects.ts";

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

/** Returns what differs in what two versions of a plan grant. */
export function planSettingChanges(id: string, before: GrantedJson, after: GrantedJson): SettingChange[] {
  const settings = ({ spending_caps: caps, ...plan }: GrantedJson) => ({
    ...plan,
    caps: caps.map(grantedCapText),
  });
  return settingChanges(settings(before), settings(after), `plans.${id}`);
}
