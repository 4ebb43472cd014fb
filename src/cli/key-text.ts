/** Text of keys for people: the table of a list, and the details of one key. */

import type { KeyJson } from "../accounts/operator-objects.ts";
import { limitTexts } from "../accounts/plan-limits.ts";
import { keyState } from "../actions/columns.ts";
import { creditsIn, type EpochMs, exactCredits, grouped, shortTime } from "../units.ts";
import { columnsOf, table } from "./format.ts";

export function keyTable(keys: readonly KeyJson[], nowMs: EpochMs): string {
  const names =
    "id account last_four name revoked_at models limits budget? last_used_at expires_at old_secret_until?";
  return table(keys, columnsOf("key", names, cellsAt(nowMs)));
}

export function keyDetails(key: KeyJson, nowMs: EpochMs): string {
  const names =
    "last_four account name revoked_at models limits budget portal acts_for created_at expires_at last_used_at old_secret_until";
  const columns = columnsOf("key", names, {
    ...cellsAt(nowMs),
    budget: (each: KeyJson) => budgetText(each) + windowText(each),
    portal: ({ portal }: KeyJson) => (portal === "own" ? "sees itself" : "manages all keys of the account"),
    acts_for: ({ acts_for: frontEnd }: KeyJson) => (frontEnd === null ? "-" : frontEndText(frontEnd)),
  });
  return [`Key ${key.id}`, ...columns.map(({ title, cell }) => `  ${title.padEnd(18)}${cell(key)}`)].join(
    "\n",
  );
}

function cellsAt(nowMs: EpochMs) {
  return {
    last_four: (key: KeyJson) => `ink_...${key.last_four}`,
    revoked_at: (key: KeyJson) => keyState(key, nowMs),
    limits: ({ limits }: KeyJson) => limitTexts(limits).join(", ") || "-",
    budget: budgetText,
  };
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

function windowText({ budget }: KeyJson): string {
  if (budget === null) return "";
  const { spent_micro: spent, held_micro: held, started_at: start, refreshes_at: end } = budget;
  return `; ${exactCredits(spent)} spent since ${shortTime(start)}, ${exactCredits(held)} held; refreshes ${shortTime(end)}`;
}
