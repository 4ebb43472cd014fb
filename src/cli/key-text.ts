/** Text of keys for people: the table of a list, and the details of one key. */
import { budgetOf } from "../ledger/key-budget.ts";
import type { KeyRow } from "../ledger/rows.ts";
import { creditsIn, type EpochMs, exactCredits, grouped } from "../units.ts";
import { type Column, shortTime, table } from "./format.ts";

/** Budgets and old secrets have columns only if a key has one. */
export function keyTable(rows: readonly KeyRow[], nowMs: EpochMs): string {
  const budgets: Column<KeyRow> = { head: "BUDGET LEFT", cell: (row) => budgetText(row) ?? "-" };
  const secrets: Column<KeyRow> = { head: "OLD SECRET UNTIL", cell: (row) => shortTime(row.oldUntilMs) };
  return table(rows, [
    { head: "ID", cell: (row) => row.id },
    { head: "ACCOUNT", cell: (row) => row.account },
    { head: "KEY", cell: (row) => `ink_...${row.lastFour}` },
    { head: "NAME", cell: (row) => row.name ?? "-" },
    { head: "STATE", cell: (row) => stateOf(row, nowMs) },
    { head: "MODELS", cell: (row) => row.models.join(",") },
    { head: "LIMITS", cell: limitsOf },
    ...(rows.some((row) => row.budget !== null) ? [budgets] : []),
    { head: "LAST USED", cell: (row) => shortTime(row.lastUsedMs) },
    { head: "EXPIRES", cell: (row) => shortTime(row.expiresMs) },
    ...(rows.some((row) => row.oldUntilMs !== null) ? [secrets] : []),
  ]);
}

export function keyDetails(row: KeyRow, nowMs: EpochMs): string {
  const budget = budgetOf(row);
  const lines: [label: string, text: string][] = [
    ["key", `ink_...${row.lastFour} of account ${row.account}`],
    ["name", row.name ?? "-"],
    ["state", stateOf(row, nowMs)],
    ["models", row.models.join(",")],
    ["limits", limitsOf(row)],
    ["budget", budgetText(row) ?? "-"],
    ...(budget === null
      ? []
      : ([
          ["  spent", `${exactCredits(row.budgetSpent ?? 0)} since ${shortTime(budget.fromMs)}`],
          ["  held", `${exactCredits(row.held)} by running requests`],
          ["  refreshes", shortTime(budget.untilMs)],
        ] satisfies typeof lines)),
    ["portal", row.portal === "own" ? "sees itself" : "manages all keys of the account"],
    ["created", shortTime(row.createdMs)],
    ["expires", row.expiresMs === null ? "never" : shortTime(row.expiresMs)],
    ["last used", shortTime(row.lastUsedMs)],
    ["old secret", row.oldUntilMs === null ? "-" : `valid until ${shortTime(row.oldUntilMs)}`],
  ];
  return [`Key ${row.id}`, ...lines.map(([label, text]) => `  ${label.padEnd(12)}${text}`)].join("\n");
}

export function stateOf(row: KeyRow, nowMs: EpochMs): "active" | "revoked" | "expired" {
  if (row.revokedMs !== null) return "revoked";
  return row.expiresMs !== null && row.expiresMs <= nowMs ? "expired" : "active";
}

function budgetText(row: KeyRow): string | null {
  const state = budgetOf(row);
  if (state === null) return null;
  return `${grouped(creditsIn(state.left))} of ${grouped(creditsIn(row.budget ?? 0))} (${row.budgetEvery}${row.budgetAlign === "calendar" ? `, ${row.budgetTimezone}` : ""})`;
}

function limitsOf({ requestsPerMinute: rpm, tokensPerMinute: tpm, concurrent }: KeyRow): string {
  const limits = [
    ...(rpm === null ? [] : [`${rpm} rpm`]),
    ...(tpm === null ? [] : [`${tpm} tpm`]),
    ...(concurrent === null ? [] : [`${concurrent} at once`]),
  ];
  return limits.join(", ") || "-";
}
