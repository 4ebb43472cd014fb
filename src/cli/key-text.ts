/** Text of keys for people: the table of a list, and the details of one key. */

import type { KeyJson } from "../accounts/operator-objects.ts";
import { limitTexts } from "../accounts/plan-limits.ts";
import { keyState } from "../actions/columns.ts";
import { creditsIn, type EpochMs, exactCredits, grouped, shortTime } from "../units.ts";
import { columnsOf, table } from "./format.ts";

export function keyTable(keys: readonly KeyJson[], nowMs: EpochMs): string {
  const names =
    "id account last_four name revoked_at models limits budget? last_used_at expires_at old_secret_until?";
  return table(
    keys,
    columnsOf("key", names, {
      last_four: (key: KeyJson) => `ink_...${key.last_four}`,
      revoked_at: (key: KeyJson) => keyState(key, nowMs),
      limits: limitsOf,
      budget: budgetText,
    }),
  );
}

export function keyDetails(key: KeyJson, nowMs: EpochMs): string {
  const { budget } = key;
  const lines: [label: string, text: string][] = [
    ["key", `ink_...${key.last_four} of account ${key.account}`],
    ["name", key.name ?? "-"],
    ["state", keyState(key, nowMs)],
    ["models", key.models.join(", ")],
    ["limits", limitsOf(key)],
    ["budget", budgetText(key)],
    ...(budget === null
      ? []
      : ([
          ["  spent", `${exactCredits(budget.spent_micro)} since ${shortTime(budget.started_at)}`],
          ["  held", `${exactCredits(budget.held_micro)} by running requests`],
          ["  refreshes", shortTime(budget.refreshes_at)],
        ] satisfies typeof lines)),
    ["portal", key.portal === "own" ? "sees itself" : "manages all keys of the account"],
    ...(key.acts_for === null ? [] : ([["front end", frontEndText(key.acts_for)]] satisfies typeof lines)),
    ["created", shortTime(key.created_at)],
    ["expires", key.expires_at === null ? "never" : shortTime(key.expires_at)],
    ["last used", shortTime(key.last_used_at)],
    ["old secret", key.old_secret_until === null ? "-" : `valid until ${shortTime(key.old_secret_until)}`],
  ];
  return [`Key ${key.id}`, ...lines.map(([label, text]) => `  ${label.padEnd(12)}${text}`)].join("\n");
}

function frontEndText({ name, header, plan, new_accounts_per_day: most }: NonNullable<KeyJson["acts_for"]>) {
  const unknown = plan === null ? "are refused" : `get the plan ${plan}, at most ${most} a day`;
  return `${name}; ${header} names the person; unknown people ${unknown}`;
}

function budgetText({ budget }: KeyJson): string {
  if (budget === null) return "-";
  const zone = budget.align === "calendar" ? `, ${budget.timezone}` : "";
  return `${grouped(creditsIn(budget.left_micro))} of ${grouped(budget.credits)} (${budget.every}${zone})`;
}

function limitsOf({ limits }: KeyJson): string {
  return limitTexts(limits).join(", ") || "-";
}
