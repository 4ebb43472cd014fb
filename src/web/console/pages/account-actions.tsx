/** Changes of an account: credits, plan, state, end and contact. */
import { useState } from "preact/hooks";
import { ActionButton } from "../../shared/action-button.tsx";
import { Menu } from "../../shared/menu.tsx";
import type { Account } from "../types.ts";
import { adjust, refund, topUp } from "./account-credits.tsx";
import type { AccountChange } from "./account-dialog.tsx";
import { plan } from "./account-plan.tsx";
import { changeContact, changeEnd, close, invitePerson, resume, suspend } from "./account-state.tsx";

/** The states of an account that has an item in the menu. */
const unclosed: readonly string[] = ["active", "suspended"];
const all: readonly string[] = [...unclosed, "closed"];

const items: readonly (readonly [title: string, change: AccountChange, states: readonly string[]])[] = [
  ["Change the plan", plan, unclosed],
  ["Adjust credits", adjust, unclosed],
  ["Refund a payment", refund, all],
  ["Invite a person", invitePerson, unclosed],
  ["Edit the contact", changeContact, all],
  ["Set the end date", changeEnd, unclosed],
  ["Suspend", suspend, ["active"]],
  ["Resume", resume, ["suspended"]],
  ["Close for good", close, unclosed],
];

export function AccountActions({ account, reload }: { account: Account; reload(): void }) {
  const [open, setOpen] = useState<AccountChange | null>(null);
  const button = (title: string, change: AccountChange, look: string) => (
    <ActionButton
      key={title}
      action={change.action}
      json={change.json}
      class={look}
      onClick={() => setOpen(change)}
    >
      {title}
    </ActionButton>
  );
  return (
    <>
      {account.state !== "closed" && button("Top up", topUp, "primary")}
      <Menu title="Change">
        {items
          .filter(([, , states]) => states.includes(account.state))
          .map(([title, change]) => button(title, change, change === close ? "danger" : ""))}
      </Menu>
      {open && (
        <open.Dialog
          account={account}
          close={(isDone) => {
            setOpen(null);
            if (isDone) reload();
          }}
        />
      )}
    </>
  );
}
