/** The dialog of an action on an account. */
import type { ComponentType } from "preact";
import type { ActionTexts } from "../../../actions/action.ts";
import { ActionDialog, type ActionProps } from "../../shared/action-dialog.tsx";
import type { Account } from "../types.ts";

export interface AccountDialogProps {
  account: Account;
  close(isDone: boolean): void;
}

export interface AccountChange {
  action: ActionTexts;
  Dialog: ComponentType<AccountDialogProps>;
  /** Values that decide which role it needs. */
  json?: object;
}

/** `partsOf`: what the page knows of the account, and what differs from the action. */
export function accountChange<Result>(
  action: ActionProps<Result>["action"],
  partsOf: (account: Account) => Partial<ActionProps<Result>> = () => ({}),
  json: Readonly<Record<string, string>> = {},
): AccountChange {
  const Dialog = ({ account, close }: AccountDialogProps) => (
    <ActionDialog
      action={action}
      target={{ account: account.id, ...json }}
      subject={account.id}
      {...partsOf(account)}
      close={close}
    />
  );
  return { action, Dialog, json };
}
