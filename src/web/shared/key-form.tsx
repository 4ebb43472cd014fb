/**
 * The forms that create and change a key. A change sends only the settings that differ from those
 * that the form began with, so it undoes no change that somebody else made meanwhile.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ActionDialog } from "./action.tsx";
import { send } from "./api.ts";
import { type FieldOf, momentIn, type Values } from "./field.tsx";
import { wholeNumber, wholeNumberIn } from "./numbers.ts";
import { Secret } from "./secret.tsx";
import { exactTime } from "./times.ts";
import type { Key, NewKey } from "./types.ts";

const limits = [
  ["requests_per_minute", "Requests per minute"],
  ["tokens_per_minute", "Tokens per minute"],
  ["concurrent", "Requests at once"],
] as const;

/** Name of the field with the rights in the portal. */
const portalField = "portal";

/**
 * Returns the fields of a form. `key` has their present values. `creator` is the key of the
 * session: hints name its limits, which no key may exceed. Without one, the form has the rights in
 * the portal too, which only operators set.
 */
export function keyFields({ key, creator }: { key?: Key; creator?: Key }): FieldOf[] {
  const initial = (value: string | number | null | undefined) => (value == null ? "" : String(value));
  // A new key has what its creator has, unless it is given less.
  const orDefault = key === undefined ? ", which is also the default" : "";
  const expiry = creator?.expires_at;
  const models = creator?.models ?? ["*"];
  return [
    {
      ...{ name: "name", label: "Name", initial: initial(key?.name) },
      ...{ hint: "For whom or what the key is.", isRequired: key === undefined && creator !== undefined },
    },
    {
      ...{ name: "budget.credits", label: "Budget in credits", kind: "number", min: 1 },
      initial: initial(key?.budget?.credits),
    },
    {
      ...{ name: "budget.every", label: "Budget period", kind: "select" },
      initial: initial(key?.budget?.every),
      hint: "The budget is full again after each period.",
      options: periodsWith(key?.budget?.every),
    },
    {
      ...{ name: "budget.align", label: "Refill of the budget", kind: "select" },
      initial: key?.budget?.align ?? "opening",
      isShown: hasCalendarPeriod,
      options: [
        ["opening", "one period after it is set, and so on"],
        ["calendar", "with the calendar day, week or month"],
      ],
    },
    {
      ...{ name: "budget.timezone", label: "Time zone of the budget" },
      initial: key?.budget?.align === "calendar" ? key.budget.timezone : "",
      isShown: isByCalendar,
      hint: "A name such as Europe/Berlin. Without one, it is the time zone of the plan.",
    },
    {
      ...{ name: "models", label: "Models", initial: (key?.models ?? models).join(", "), isRequired: true },
      hint: models.includes("*")
        ? "Ids separated by commas, or * for all models of the plan."
        : `Ids separated by commas. Your key allows: ${models.join(", ")}.`,
    },
    {
      ...{ name: "expires_at", label: "Expires at (UTC)", kind: "moment" },
      initial: key?.expires_at?.slice(0, 16) ?? "",
      ...(expiry != null && {
        hint: `At the latest when your key expires${orDefault}: ${exactTime(Date.parse(expiry))}.`,
      }),
    },
    ...limits.map(([name, label]): FieldOf => {
      const max = creator?.limits[name] ?? null;
      return {
        ...{ name, label, kind: "number", min: 1, initial: initial(key?.limits[name]) },
        ...(max !== null && { hint: `At most ${wholeNumber(max)}, as your key allows${orDefault}.` }),
      };
    }),
    ...(creator === undefined ? [portalRights(key)] : []),
  ];
}

function portalRights(key: Key | undefined): FieldOf {
  return {
    ...{ name: portalField, label: "In the portal", kind: "select", initial: key?.portal ?? "own" },
    options: [
      ["own", "sees itself"],
      ["account", "manages all keys of the account"],
    ],
  };
}

const periods = [
  ["PT5H", "5 hours"],
  ["P1D", "day"],
  ["P1W", "week"],
  ["P1M", "month"],
] as const;

/** Returns `week` for `P1W`. Unusual periods stay as they are. */
export function periodTitle(every: string): string {
  return periods.find(([period]) => period === every)?.[1] ?? every;
}

function periodsWith(present: string | undefined): [string, string][] {
  const options = periods.map(([period, title]): [string, string] => [period, `${title} (${period})`]);
  const isOther = present !== undefined && !periods.some(([period]) => period === present);
  return [["", "no budget"], ...options, ...(isOther ? [[present, present] satisfies [string, string]] : [])];
}

const calendarPeriods: readonly unknown[] = ["P1D", "P1W", "P1M"];

function hasCalendarPeriod(values: Values): boolean {
  return calendarPeriods.includes(values["budget.every"]);
}

function isByCalendar(values: Values): boolean {
  return hasCalendarPeriod(values) && values["budget.align"] === "calendar";
}

/** The settings as the API takes them. An empty field is null. */
function settingsIn(values: Values): Record<string, unknown> {
  const numberAt = (name: string) => wholeNumberIn(values[name] ?? "");
  const models = (values.models ?? "").split(",").map((id) => id.trim());
  const every = values["budget.every"] || null;
  const budget = {
    ...{ credits: numberAt("budget.credits"), every },
    align: every === null ? null : isByCalendar(values) ? "calendar" : "opening",
    timezone: isByCalendar(values) ? values["budget.timezone"]?.trim() || null : null,
  };
  const hasBudget = budget.credits !== null || budget.every !== null;
  return {
    name: values.name?.trim() || null,
    models: models.filter((id) => id !== ""),
    expires_at: momentIn(values.expires_at ?? ""),
    ...Object.fromEntries(limits.map(([name]) => [name, numberAt(name)])),
    budget: hasBudget ? withoutNulls(budget) : null,
    ...(values[portalField] !== undefined && { portal: values[portalField] }),
  };
}

function withoutNulls(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

interface FormProps {
  title: string;
  intro?: ComponentChildren;
  path: string;
  fields: readonly FieldOf[];
  close(isDone: boolean): void;
}

/** Its name is enough for a new key, so the other settings stand apart. */
export function NewKeyForm({ path, fields, ...rest }: FormProps) {
  return (
    <ActionDialog
      {...rest}
      fields={fields.map((field) => ({ ...field, isMore: field.name !== "name" }))}
      kind="key"
      submit="Create the key"
      send={async (values, operationId) => {
        const body = { operation_id: operationId, ...withoutNulls(settingsIn(values)) };
        const { key } = await send<NewKey>("POST", path, body);
        return {
          done: "The key is created.",
          result: <Secret secret={key} lost="Revoke this key in the list, and create another one." />,
        };
      }}
    />
  );
}

export function KeyForm({ path, fields, ...rest }: FormProps) {
  // The list may be loaded again while the form is open.
  const [before] = useState(() =>
    settingsIn(Object.fromEntries(fields.map(({ name, initial = "" }) => [name, initial]))),
  );
  return (
    <ActionDialog
      {...rest}
      fields={fields}
      kind="key"
      submit="Save the settings"
      send={async (values, operationId) => {
        const changed = Object.entries(settingsIn(values)).filter(
          ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]),
        );
        if (changed.length === 0) return { done: "Nothing was changed." };
        await send("PATCH", path, { operation_id: operationId, ...Object.fromEntries(changed) });
        return { done: "The settings are saved." };
      }}
    />
  );
}
