/** Changes of an account: credits, plan, state, end and contact. */
import type { ComponentType } from "preact";
import { useState } from "preact/hooks";
import { changePlan, changeState, inviteAccount, setContact, setEnd } from "../../../actions/accounts.ts";
import type { ActionTexts } from "../../../actions/action.ts";
import { addCredits, adjustCredits, refundCredits } from "../../../actions/credits.ts";
import { ActionButton } from "../../shared/action-button.tsx";
import { Menu } from "../../shared/menu.tsx";
import type { Account } from "../types.ts";
import { AdjustCredits, RefundCredits, TopUp } from "./account-credits.tsx";
import { ChangePlan } from "./account-plan.tsx";
import { ChangeContact, Close, InvitePerson, Resume, SetEnd, Suspend } from "./account-state.tsx";

type Dialog = ComponentType<{ account: Account; close(isDone: boolean): void }>;

const unclosed: readonly string[] = ["active", "suspended"];

/** The items of the menu, and the states of an account that has them. */
const changes: readonly {
  title: string;
  action: ActionTexts;
  json?: object;
  Dialog: Dialog;
  states: readonly string[];
}[] = [
  { title: "Change the plan", action: changePlan, Dialog: ChangePlan, states: unclosed },
  { title: "Adjust credits", action: adjustCredits, Dialog: AdjustCredits, states: unclosed },
  {
    title: "Refund a payment",
    action: refundCredits,
    Dialog: RefundCredits,
    states: [...unclosed, "closed"],
  },
  { title: "Invite a person", action: inviteAccount, Dialog: InvitePerson, states: unclosed },
  { title: "Edit the contact", action: setContact, Dialog: ChangeContact, states: [...unclosed, "closed"] },
  { title: "Set the end date", action: setEnd, Dialog: SetEnd, states: unclosed },
  { title: "Suspend", action: changeState, Dialog: Suspend, states: ["active"] },
  { title: "Resume", action: changeState, Dialog: Resume, states: ["suspended"] },
  {
    title: "Close for good",
    action: changeState,
    json: { state: "closed" },
    Dialog: Close,
    states: unclosed,
  },
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
        <ActionButton action={addCredits} class="primary" onClick={() => setShown({ Dialog: TopUp })}>
          Top up
        </ActionButton>
      )}
      <Menu title="Change">
        {changes
          .filter(({ states }) => states.includes(account.state))
          .map((change) => (
            <ActionButton
              key={change.title}
              action={change.action}
              json={change.json}
              class={change.Dialog === Close ? "danger" : ""}
              onClick={() => setShown(change)}
            >
              {change.title}
            </ActionButton>
          ))}
      </Menu>
      {shown && <shown.Dialog account={account} close={close} />}
    </>
  );
}
