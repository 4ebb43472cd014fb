/** Creating, changing, rotating and revoking a key. A new secret is shown once. */

import { ActionDialog } from "../../shared/action.tsx";
import { apiPath, send } from "../../shared/api.ts";
import { type FieldOf, momentIn, type Values } from "../../shared/field.tsx";
import { RotateDialog } from "../../shared/key-values.tsx";
import { wholeNumberIn } from "../../shared/numbers.ts";
import { Secret } from "../../shared/secret.tsx";
import type { Key, NewKey } from "../../shared/types.ts";

interface Props {
  of: Key;
  close(isDone: boolean): void;
}

const limitNames = ["requests_per_minute", "tokens_per_minute", "concurrent"] as const;

function fieldsFor(key: Key | null): FieldOf[] {
  const initial = (value: string | number | null | undefined) => (value == null ? "" : String(value));
  return [
    { name: "name", label: "Name", initial: initial(key?.name), hint: "For whom or what the key is." },
    {
      name: "budget.credits",
      label: "Budget in credits",
      kind: "number",
      initial: initial(key?.budget?.credits),
    },
    {
      ...{
        name: "budget.every",
        label: "Budget period",
        kind: "select",
        initial: initial(key?.budget?.every),
      },
      hint: "The budget is full again after each period.",
      options: periodsWith(key?.budget?.every),
    },
    {
      ...{ name: "models", label: "Models", initial: key?.models.join(", ") ?? "*" },
      hint: "Ids separated by commas, or * for all models of the plan.",
    },
    {
      ...{ name: "expires_at", label: "Expires at (UTC)", kind: "moment" },
      initial: key?.expires_at?.slice(0, 16) ?? "",
    },
    {
      ...{ name: "requests_per_minute", label: "Requests per minute", kind: "number" },
      initial: initial(key?.limits.requests_per_minute),
    },
    {
      ...{ name: "tokens_per_minute", label: "Tokens per minute", kind: "number" },
      initial: initial(key?.limits.tokens_per_minute),
    },
    {
      ...{ name: "concurrent", label: "Requests at once", kind: "number" },
      initial: initial(key?.limits.concurrent),
    },
    {
      ...{ name: "portal", label: "In the portal", kind: "select", initial: key?.portal ?? "own" },
      options: [
        ["own", "sees itself"],
        ["account", "manages all keys of the account"],
      ],
    },
  ];
}

function periodsWith(present: string | undefined): [string, string][] {
  const periods: [string, string][] = [
    ["", "no budget"],
    ["PT5H", "5 hours (PT5H)"],
    ["P1D", "day (P1D)"],
    ["P1W", "week (P1W)"],
    ["P1M", "month (P1M)"],
  ];
  if (present === undefined || periods.some(([period]) => period === present)) return periods;
  return [...periods, [present, present]];
}

/** The settings as the API takes them. An empty field is null. */
function settingsIn(values: Values): Record<string, unknown> {
  const numberAt = (name: string) => wholeNumberIn(values[name] ?? "");
  const models = (values.models ?? "").split(",").map((id) => id.trim());
  const budget = { credits: numberAt("budget.credits"), every: values["budget.every"] || null };
  const hasBudget = budget.credits !== null || budget.every !== null;
  return {
    name: values.name?.trim() || null,
    models: models.filter((id) => id !== ""),
    expires_at: momentIn(values.expires_at ?? ""),
    ...Object.fromEntries(limitNames.map((name) => [name, numberAt(name)])),
    budget: hasBudget ? withoutNulls(budget) : null,
    portal: values.portal,
  };
}

function withoutNulls(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

export function CreateKey({ account, close }: { account: string; close(isDone: boolean): void }) {
  return (
    <ActionDialog
      title={`Create a key for ${account}`}
      kind="key"
      submit="Create the key"
      fields={fieldsFor(null)}
      send={async (values, operationId) => {
        const body = { operation_id: operationId, ...withoutNulls(settingsIn(values)) };
        const { key } = await send<NewKey>("POST", apiPath("accounts", account, "keys"), body);
        return {
          done: "The key is created.",
          result: <Secret secret={key} lost="Revoke this key in the list, and create another one." />,
        };
      }}
      close={close}
    />
  );
}

export function ChangeKey({ of: key, close }: Props) {
  const fields = fieldsFor(key);
  const before = settingsIn(Object.fromEntries(fields.map(({ name, initial = "" }) => [name, initial])));
  return (
    <ActionDialog
      title={`Edit the key ${key.name ?? `…${key.last_four}`}`}
      kind="key"
      submit="Save the settings"
      intro={<p>The next request of the key uses the new settings. Empty fields remove a setting.</p>}
      fields={fields}
      send={async (values, operationId) => {
        const after = settingsIn(values);
        const changed = Object.entries(after).filter(
          ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]),
        );
        if (changed.length === 0) return { done: "Nothing was changed." };
        const body = { operation_id: operationId, ...Object.fromEntries(changed) };
        await send("PATCH", apiPath("keys", key.id), body);
        return { done: "The settings are saved." };
      }}
      close={close}
    />
  );
}

export function RotateKey({ of: key, close }: Props) {
  return (
    <RotateDialog
      name={key.name ?? `…${key.last_four}`}
      path={apiPath("keys", key.id, "rotate")}
      note={null}
      close={close}
    />
  );
}

export function RevokeKey({ of: key, close }: Props) {
  return (
    <ActionDialog
      title={`Revoke the key ${key.name ?? `…${key.last_four}`}`}
      kind="revoke"
      submit="Revoke for good"
      isDangerous
      intro={
        <p>
          Clients with this key are refused from now on; running requests may finish. This cannot be undone.
          The receipts of the key stay.
        </p>
      }
      send={async () => {
        await send("DELETE", apiPath("keys", key.id));
        return { done: "The key is revoked." };
      }}
      close={close}
    />
  );
}
