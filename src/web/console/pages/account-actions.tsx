/** Changes of an account: credits, plan, state, end and contact. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useAction } from "../../shared/form-dialog.tsx";
import type { Account } from "../types.ts";
import { AdjustCredits, RefundCredits, TopUp } from "./account-credits.tsx";
import { ChangePlan } from "./account-plan.tsx";
import { ChangeContact, ChangeState, InvitePerson, SetEnd } from "./account-state.tsx";

type Name =
  | "topup"
  | "plan"
  | "adjust"
  | "refund"
  | "invite"
  | "contact"
  | "end"
  | "suspend"
  | "resume"
  | "close";

const titles: Readonly<Record<Name, string>> = {
  topup: "Top up",
  plan: "Change the plan",
  adjust: "Adjust credits",
  refund: "Refund a payment",
  invite: "Invite a person",
  contact: "Edit the contact",
  end: "Set the end date",
  suspend: "Suspend",
  resume: "Resume",
  close: "Close for good",
};

function namesFor({ state }: Account): Name[] {
  if (state === "closed") return ["refund", "contact"];
  return [
    "plan",
    "adjust",
    "refund",
    "invite",
    "contact",
    "end",
    state === "active" ? "suspend" : "resume",
    "close",
  ];
}

export function AccountActions({ account, reload }: { account: Account; reload(): void }) {
  const { open, show, close } = useAction<Name>(reload);
  const shared = { account, close };
  return (
    <>
      {account.state !== "closed" && (
        <button type="button" class="primary" onClick={() => show("topup")}>
          {titles.topup}
        </button>
      )}
      <Menu title="Change">
        {namesFor(account).map((name) => (
          <button
            key={name}
            type="button"
            class={name === "close" ? "danger" : ""}
            onClick={() => show(name)}
          >
            {titles[name]}
          </button>
        ))}
      </Menu>
      {open === "topup" && <TopUp {...shared} />}
      {open === "plan" && <ChangePlan {...shared} />}
      {open === "adjust" && <AdjustCredits {...shared} />}
      {open === "refund" && <RefundCredits {...shared} />}
      {open === "invite" && <InvitePerson {...shared} />}
      {open === "contact" && <ChangeContact {...shared} />}
      {open === "end" && <SetEnd {...shared} />}
      {(open === "suspend" || open === "resume" || open === "close") && (
        <ChangeState {...shared} change={open} />
      )}
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
