/** What both apps show of a key. */
import type { ComponentChildren } from "preact";
import { limitTexts } from "../../accounts/plan-limits.ts";
import type { ActionTexts } from "../../actions/action.ts";
import { keyState } from "../../actions/columns.ts";
import { periodTitle } from "../../actions/fields.ts";
import { exactCredits, microPerCredit } from "../../units.ts";
import { LeftBar } from "./balance.tsx";
import { wholeNumber } from "./numbers.ts";
import type { Parts, RowAction } from "./resource-page.tsx";
import type { Key } from "./types.ts";
import { Badge, Due, Time } from "./values.tsx";

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

/** What is left of the caps of a key, and when they are full again. */
export function KeyCaps({ of: { spending_caps: caps } }: { of: Key }) {
  if (caps.length === 0) return <span class="quiet">none</span>;
  return (
    <>
      {caps.map((cap) => (
        <div
          key={capKey(cap)}
          title={`spent ${exactCredits(cap.spent_micro)}, held ${exactCredits(cap.held_micro)}`}
        >
          {exactCredits(cap.left_micro)} of {wholeNumber(cap.credits)} left ({capTitle(cap)}), refills{" "}
          <Time at={cap.refreshes_at} />
          {cap.by_operator && <span class="quiet">, set by the operator</span>}
        </div>
      ))}
    </>
  );
}

/** Columns of a key that both apps have. */
export const keyNames = "name last_four revoked_at spending_caps limits models expires_at last_used_at";

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

/** An action of each row of a list of keys. A revoked key has none. */
export function keyAction(
  title: string,
  action: ActionTexts,
  partsOf: (key: Key) => Parts = () => ({}),
): RowAction<Key> {
  return {
    title,
    action,
    label: (key) => `${title} the key ${keyTitle(key)}`,
    isFor: ({ revoked_at: revokedAt }) => revokedAt === null,
    parts: (key) => ({ target: { key: key.id }, subject: keyTitle(key), ...partsOf(key) }),
  };
}

function capTitle({ name, every }: Key["spending_caps"][number]): string {
  return name === every ? periodTitle(every) : name;
}

/** Tells the caps of an account or a key apart. */
export function capKey({ name, every, align, timezone }: Key["spending_caps"][number]): string {
  return [name, every, align, timezone].join(" ");
}

/** What each cap of an account or a key has left. */
export function CapPictures({ of: caps, owner }: { of: Key["spending_caps"]; owner: string }) {
  return caps.map((cap) => <CapPicture key={capKey(cap)} of={cap} owner={owner} />);
}

function CapPicture({ of: cap, owner }: { of: Key["spending_caps"][number]; owner: string }) {
  const percent = cap.credits === 0 ? 0 : Math.floor((cap.left_micro / (cap.credits * microPerCredit)) * 100);
  const heldPercent = cap.held_micro === 0 ? 0 : (cap.held_micro / (cap.credits * microPerCredit)) * 100;
  const isNamed = cap.name !== cap.every;
  return (
    <LeftBar
      name={`${isNamed ? `${cap.name}: ` : ""}at most ${wholeNumber(cap.credits)} every ${periodTitle(cap.every)}`}
      left={`${exactCredits(cap.left_micro)} left`}
      label={`${percent} % of the cap ${capTitle(cap)} of ${owner} are left`}
      percent={percent}
      heldPercent={heldPercent}
    >
      <span>
        {owner}
        {!cap.models.includes("*") && `, for ${cap.models.join(", ")}`}: spent {exactCredits(cap.spent_micro)}
        {cap.held_micro > 0 && `, held ${exactCredits(cap.held_micro)}`}
      </span>
      <span>
        refills <Due at={cap.refreshes_at} />
      </span>
    </LeftBar>
  );
}
