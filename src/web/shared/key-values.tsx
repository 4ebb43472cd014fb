/** What both apps show of a key, and the dialog that gives it a new secret. */
import { type ComponentChildren, Fragment } from "preact";
import { exactCredits } from "../../units.ts";
import { ActionDialog } from "./action.tsx";
import { send } from "./api.ts";
import { wholeNumber } from "./numbers.ts";
import { Secret } from "./secret.tsx";
import type { Column } from "./table.tsx";
import type { Key, NewKey } from "./types.ts";
import { Badge, Time } from "./values.tsx";

export function KeyState({ of: key }: { of: Key }) {
  if (key.revoked_at !== null) return <Badge text="revoked" />;
  const isExpired = key.expires_at !== null && Date.parse(key.expires_at) <= Date.now();
  if (isExpired) return <Badge text="expired" />;
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
  const parts = [
    limits.requests_per_minute !== null && `${wholeNumber(limits.requests_per_minute)} requests/min`,
    limits.tokens_per_minute !== null && `${wholeNumber(limits.tokens_per_minute)} tokens/min`,
    limits.concurrent !== null && `${wholeNumber(limits.concurrent)} at once`,
  ].filter((part) => part !== false);
  return parts.length === 0 ? <span class="quiet">none</span> : parts.join(", ");
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

interface KeyActions {
  /** Titles of the buttons. */
  actions: readonly string[];
  /** Names a key for screen readers. */
  nameOf(key: Key): string;
  /** Called with the title in lower case and the id of the key. */
  show(action: string): void;
}

/** Returns the last columns of a table of keys; keys that are not revoked have buttons. */
export function lastKeyColumns({ actions, nameOf, show }: KeyActions): Column<Key>[] {
  return [
    { title: "Expires", cell: (key) => <Time at={key.expires_at} /> },
    { title: "Last used", cell: (key) => <Time at={key.last_used_at} /> },
    {
      title: "Change",
      cell: (key) =>
        key.revoked_at === null && (
          <span class="nowrap">
            {actions.map((title) => (
              <Fragment key={title}>
                <button
                  type="button"
                  aria-label={`${title} the key ${nameOf(key)}`}
                  onClick={() => show(`${title.toLowerCase()} ${key.id}`)}
                >
                  {title}
                </button>{" "}
              </Fragment>
            ))}
          </span>
        ),
    },
  ];
}

/** `note` is said before the change. */
export function RotateDialog(props: {
  name: string;
  path: string;
  note: ComponentChildren;
  close(isDone: boolean): void;
}) {
  const { name, path, note, close } = props;
  return (
    <ActionDialog
      title={`Rotate the key ${name}`}
      kind="rotate"
      submit="Create a new secret"
      isDangerous
      intro={
        <p>
          The key gets a new secret. Its name, budget, limits and receipts stay. A secret from an earlier
          rotation ends at once. {note}
        </p>
      }
      fields={[
        {
          ...{ name: "reason", label: "The present secret", kind: "choice", initial: "planned" },
          isRequired: true,
          options: [
            ["planned", "Planned: it ends later"],
            ["leaked", "The secret leaked: end it now"],
          ],
        },
        {
          ...{ name: "overlap", label: "The present secret stays valid for", kind: "select", initial: "P1D" },
          isRequired: true,
          isShown: ({ reason }) => reason === "planned",
          options: [
            ["PT1H", "an hour"],
            ["P1D", "a day"],
            ["P1W", "a week"],
            ["P1M", "a month"],
          ],
        },
      ]}
      send={async ({ reason, overlap }, operationId) => {
        const body = { operation_id: operationId, overlap: reason === "leaked" ? "none" : overlap };
        const rotated = await send<NewKey>("POST", path, body);
        const lost =
          reason === "leaked"
            ? "The old secret has ended. Rotate the key again."
            : "The old secret is valid for the overlap. Create another key, and then revoke this one.";
        return { done: "The key has a new secret.", result: <Secret secret={rotated.key} lost={lost} /> };
      }}
      close={close}
    />
  );
}
