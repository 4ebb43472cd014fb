/** The JSON of usage by hour, for the operator API and the command line. */
import Type from "typebox";
import type { Hour, UsageHour } from "../store/usage-hours.ts";
import { hourMs } from "../units.ts";
import { closed, isoTime, objectFor, orNull, text, time } from "./json-objects.ts";
import { sumFields } from "./usage-sums.ts";

export function isoHour(hour: Hour): string {
  return isoTime(hour * hourMs);
}

const hourObject = objectFor<UsageHour>("UsageHour")({
  hour: [time, ({ hour }) => isoHour(hour)],
  model: [orNull(text), ({ model }) => model],
  ...sumFields,
});

export const usageHoursSchema = closed({ from: time, to: time, data: Type.Array(hourObject.schema) });

export function usageHoursObject({ from, to, rows }: { from: Hour; to: Hour; rows: readonly UsageHour[] }) {
  return { from: isoHour(from), to: isoHour(to), data: rows.map(hourObject.of) };
}
