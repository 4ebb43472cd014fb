/** The menu of an account: its credits, plan, state, end and contact. */
import { changePlan } from "../../../actions/accounts.ts";
import { addCredits, adjustCredits, refundCredits } from "../../../actions/credits.ts";
import { Menu } from "../../shared/menu.tsx";
import { newOperationId } from "../../shared/operation-id.ts";
import { type ListAction, useActions } from "../../shared/resource-page.tsx";
import type { Account } from "../types.ts";
import { adjustmentOf, RefundCredits } from "./account-credits.tsx";
import { ChangePlan } from "./account-plan.tsx";
import { changeContact, changesOf } from "./account-state.tsx";

export function AccountActions({ account, reload }: { account: Account; reload(): void }) {
  const { button, dialog } = useActions(reload);
  const { id, state } = account;
  const of = { target: { account: id }, subject: id };
  const topUp: ListAction = {
    title: "Top up",
    look: "primary",
    action: addCredits,
    parts: { ...of, initial: { payment_id: newOperationId("console") } },
  };
  const refund: ListAction = {
    title: "Refund a payment",
    action: refundCredits,
    dialog: (close) => <RefundCredits id={id} close={close} />,
  };
  const plan: ListAction = {
    title: "Change the plan",
    action: changePlan,
    dialog: (close) => <ChangePlan account={account} close={close} />,
  };
  const adjust: ListAction = {
    title: "Adjust credits",
    action: adjustCredits,
    parts: { ...of, preview: adjustmentOf(id) },
  };
  const items =
    state === "closed"
      ? [refund, changeContact(account, of)]
      : [plan, adjust, refund, ...changesOf(account, of)];
  return (
    <>
      {state !== "closed" && button(topUp)}
      <Menu title="Change">{items.map((each) => button(each))}</Menu>
      {dialog}
    </>
  );
}
