/** What both apps show of a key. */
import type { ComponentChildren } from "preact";
import { limitTexts } from "../../accounts/plan-limits.ts";
import { keyState } from "../../actions/columns.ts";
import { budgetPeriods } from "../../actions/fields.ts";
import { exactCredits } from "../../units.ts";
import { wholeNumber } from "./numbers.ts";
import type { RowAction } from "./resource-page.tsx";
import type { Key } from "./types.ts";
import { Badge, Time } from "./values.tsx";

function KeyState({ of: key }: { of: Key }) {
  const state = keyState(key, Date.now());
  if (state !== "active") return <Badge text={state} />;
  const isRotating = key.old_secret_until !== null && Date.parse(key.old_secret_until) > Date.now();
  return (
    <>
      <Badge text="active" />
      {isRotating && (
        <span class="quiet">
          {" "}
          old secret ends <Time at={key.old_secret_until} />
        </span>
      )}
    </>
  );
}

export function limitsOf({ limits }: Pick<Key, "limits">) {
  return limitTexts(limits).join(", ") || <span class="quiet">none</span>;
}

/** What is left of the budget of a key. `period` follows it, and its refill follows that. */
export function KeyBudget({ of: { budget }, period }: { of: Key; period(every: string): string }) {
  if (budget === null) return <span class="quiet">none</span>;
  return (
    <span title={`spent ${exactCredits(budget.spent_micro)}, held ${exactCredits(budget.held_micro)}`}>
      {exactCredits(budget.left_micro)} of {wholeNumber(budget.credits)} left{period(budget.every)}{" "}
      <Time at={budget.refreshes_at} />
    </span>
  );
}

/** Columns of a key that both apps have. */
export const keyNames = "name last_four revoked_at budget limits models expires_at last_used_at";

/** Cells of a key that both apps have. */
export const keyCells = {
  name: (key: Key): ComponentChildren => key.name ?? <span class="quiet">unnamed</span>,
  last_four: (key: Key) => <code title={`id ${key.id}`}>…{key.last_four}</code>,
  revoked_at: (key: Key) => <KeyState of={key} />,
  limits: limitsOf,
};

export function keyTitle({ name, last_four }: Pick<Key, "name" | "last_four">): string {
  return name ?? `…${last_four}`;
}

/** Returns the last column of a list of keys, with dialogs by title. A revoked key has none. */
export function keyActionsColumn(dialogs: Readonly<Record<string, RowAction<Key>["dialog"]>>) {
  const actions = Object.entries(dialogs).map(
    ([title, dialog]): RowAction<Key> => ({
      title,
      label: (key) => `${title} the key ${keyTitle(key)}`,
      isFor: ({ revoked_at: revokedAt }) => revokedAt === null,
      dialog,
    }),
  );
  return { title: "Change", actions };
}

/** Returns `week` for `P1W`. Unusual periods stay as they are. */
export function periodTitle(every: string): string {
  return budgetPeriods[every] ?? every;
}
