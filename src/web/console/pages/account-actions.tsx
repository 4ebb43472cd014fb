/** Changes of an account: credits, plan, state, end and contact. */
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Account } from "../types.ts";
import { AdjustCredits, RefundCredits, TopUp } from "./account-credits.tsx";
import { ChangePlan } from "./account-plan.tsx";
import { ChangeContact, Close, InvitePerson, Resume, SetEnd, Suspend } from "./account-state.tsx";

type Dialog = ComponentType<{ account: Account; close(isDone: boolean): void }>;

const unclosed: readonly string[] = ["active", "suspended"];

/** The items of the menu, and the states of an account that has them. */
const changes: readonly { title: string; Dialog: Dialog; states: readonly string[] }[] = [
  { title: "Change the plan", Dialog: ChangePlan, states: unclosed },
  { title: "Adjust credits", Dialog: AdjustCredits, states: unclosed },
  { title: "Refund a payment", Dialog: RefundCredits, states: [...unclosed, "closed"] },
  { title: "Invite a person", Dialog: InvitePerson, states: unclosed },
  { title: "Edit the contact", Dialog: ChangeContact, states: [...unclosed, "closed"] },
  { title: "Set the end date", Dialog: SetEnd, states: unclosed },
  { title: "Suspend", Dialog: Suspend, states: ["active"] },
  { title: "Resume", Dialog: Resume, states: ["suspended"] },
  { title: "Close for good", Dialog: Close, states: unclosed },
];

export function AccountActions({ account, reload }: { account: Account; reload(): void }) {
  const [shown, setShown] = useState<{ Dialog: Dialog } | null>(null);
  const close = (isDone: boolean) => {
    setShown(null);
    if (isDone) reload();
  };
  return (
    <>
      {account.state !== "closed" && (
        <button type="button" class="primary" onClick={() => setShown({ Dialog: TopUp })}>
          Top up
        </button>
      )}
      <Menu title="Change">
        {changes
          .filter(({ states }) => states.includes(account.state))
          .map((change) => (
            <button
              key={change.title}
              type="button"
              class={change.Dialog === Close ? "danger" : ""}
              onClick={() => setShown(change)}
            >
              {change.title}
            </button>
          ))}
      </Menu>
      {shown && <shown.Dialog account={account} close={close} />}
    </>
  );
}

/** Buttons that open below a button. A click elsewhere, Escape and each choice close it. */
function Menu({ title, children }: { title: string; children: ComponentChildren }) {
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const isEscape = event instanceof KeyboardEvent && event.key === "Escape";
      const isElsewhere =
        event.type === "click" &&
        details.current?.contains(event.target instanceof Node ? event.target : null) === false;
      if (details.current !== null && (isEscape || isElsewhere)) details.current.open = false;
    };
    addEventListener("click", close);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("click", close);
      removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details class="menu" ref={details}>
      <summary>{title}</summary>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the buttons inside take the keys */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: it only notices clicks on buttons */}
      <div
        onClick={() => {
          if (details.current === null) return;
          details.current.open = false;
          // The dialog gives the focus back to it.
          details.current.querySelector("summary")?.focus();
        }}
      >
        {children}
      </div>
    </details>
  );
}
