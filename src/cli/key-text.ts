/** Text of keys for people: the table of a list, and the details of one key. */

import type { KeyJson } from "../accounts/operator-objects.ts";
import { limitTexts } from "../accounts/plan-limits.ts";
import { creditsIn, type EpochMs, exactCredits, grouped, shortTime } from "../units.ts";
import { type Column, table } from "./format.ts";

/** Budgets and old secrets have columns only if a key has one. */
export function keyTable(keys: readonly KeyJson[], nowMs: EpochMs): string {
  const budgets: Column<KeyJson> = { head: "BUDGET LEFT", cell: (key) => budgetText(key) ?? "-" };
  const secrets: Column<KeyJson> = {
    head: "OLD SECRET UNTIL",
    cell: (key) => shortTime(key.old_secret_until),
  };
  return table(keys, [
    { head: "ID", cell: (key) => key.id },
    { head: "ACCOUNT", cell: (key) => key.account },
    { head: "KEY", cell: (key) => `ink_...${key.last_four}` },
    { head: "NAME", cell: (key) => key.name ?? "-" },
    { head: "STATE", cell: (key) => stateOf(key, nowMs) },
    { head: "MODELS", cell: (key) => key.models.join(",") },
    { head: "LIMITS", cell: limitsOf },
    ...(keys.some((key) => key.budget !== null) ? [budgets] : []),
    { head: "LAST USED", cell: (key) => shortTime(key.last_used_at) },
    { head: "EXPIRES", cell: (key) => shortTime(key.expires_at) },
    ...(keys.some((key) => key.old_secret_until !== null) ? [secrets] : []),
  ]);
}

export function keyDetails(key: KeyJson, nowMs: EpochMs): string {
  const { budget } = key;
  const lines: [label: string, text: string][] = [
    ["key", `ink_...${key.last_four} of account ${key.account}`],
    ["name", key.name ?? "-"],
    ["state", stateOf(key, nowMs)],
    ["models", key.models.join(",")],
    ["limits", limitsOf(key)],
    ["budget", budgetText(key) ?? "-"],
    ...(budget === null
      ? []
      : ([
          ["  spent", `${exactCredits(budget.spent_micro)} since ${shortTime(budget.started_at)}`],
          ["  held", `${exactCredits(budget.held_micro)} by running requests`],
          ["  refreshes", shortTime(budget.refreshes_at)],
        ] satisfies typeof lines)),
    ["portal", key.portal === "own" ? "sees itself" : "manages all keys of the account"],
    ["created", shortTime(key.created_at)],
    ["expires", key.expires_at === null ? "never" : shortTime(key.expires_at)],
    ["last used", shortTime(key.last_used_at)],
    ["old secret", key.old_secret_until === null ? "-" : `valid until ${shortTime(key.old_secret_until)}`],
  ];
  return [`Key ${key.id}`, ...lines.map(([label, text]) => `  ${label.padEnd(12)}${text}`)].join("\n");
}

export function stateOf(key: KeyJson, nowMs: EpochMs): "active" | "revoked" | "expired" {
  if (key.revoked_at !== null) return "revoked";
  return key.expires_at !== null && Date.parse(key.expires_at) <= nowMs ? "expired" : "active";
}

function budgetText({ budget }: KeyJson): string | null {
  if (budget === null) return null;
  const zone = budget.align === "calendar" ? `, ${budget.timezone}` : "";
  return `${grouped(creditsIn(budget.left_micro))} of ${grouped(budget.credits)} (${budget.every}${zone})`;
}

function limitsOf({ limits }: KeyJson): string {
  return limitTexts(limits).join(", ") || "-";
}
