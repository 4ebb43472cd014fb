/** Text of keys for people: the table of a list, and the details of one key. */

import type { KeyJson } from "../accounts/operator-objects.ts";
import { limitTexts } from "../accounts/plan-limits.ts";
import { keyState } from "../actions/columns.ts";
import { creditsIn, type EpochMs, exactCredits, grouped, shortTime } from "../units.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";

export function keyTable(keys: readonly KeyJson[], nowMs: EpochMs, cli: Cli): string {
  const names =
    "id account last_four name revoked_at models limits spending_caps? last_used_at expires_at old_secret_until?";
  return table(keys, columnsOf("key", names, cellsAt(nowMs)), cli);
}

export function keyDetails(key: KeyJson, nowMs: EpochMs): string {
  const names =
    "last_four account name revoked_at models limits spending_caps portal acts_for created_at expires_at last_used_at old_secret_until";
  const columns = columnsOf("key", names, {
    ...cellsAt(nowMs),
    spending_caps: ({ spending_caps: caps }: KeyJson) =>
      caps.map((cap) => `${cap.name}: ${capLeft(cap)}`).join(`\n${" ".repeat(20)}`) || "-",
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
    spending_caps: capsText,
  };
}

function frontEndText(frontEnd: NonNullable<KeyJson["acts_for"]>) {
  const { name, header, name_header, email_header, plan, new_accounts_per_day: most } = frontEnd;
  const unknown = plan === null ? "are refused" : `get the plan ${plan}, at most ${most} a day`;
  const shown = [name_header, email_header].filter((each) => each !== null).join(" and ");
  const labels = shown === "" ? "" : `; ${shown} is shown beside it`;
  return `${name}; ${header} names the person${labels}; unknown people ${unknown}`;
}

type CapJson = KeyJson["spending_caps"][number];

/** Returns a paragraph about the caps of an account, or none. */
export function capLines(caps: readonly CapJson[]): string[] {
  return caps.length === 0 ? [] : [caps.map((cap) => `cap ${cap.name}: ${capLeft(cap)}`).join("\n")];
}

function capsText({ spending_caps: caps }: KeyJson): string {
  return (
    caps
      .map((cap) => `${grouped(creditsIn(cap.left_micro))} of ${grouped(cap.credits)} (${cap.name})`)
      .join(", ") || "-"
  );
}

/** What a cap of a key or an account has left. */
function capLeft(cap: CapJson): string {
  const zone = cap.align === "calendar" ? `, ${cap.timezone}` : "";
  const held = cap.held_micro === 0 ? "" : `, ${exactCredits(cap.held_micro)} held by running requests`;
  const models = cap.models.includes("*") ? "" : `, of ${cap.models.join(" ")}`;
  const setter = cap.by_operator ? "" : "; set in the portal";
  return `${exactCredits(cap.left_micro)} of ${grouped(cap.credits)} left (${cap.every}${zone}${models})${held}; refreshes ${shortTime(cap.refreshes_at)}${setter}`;
}
