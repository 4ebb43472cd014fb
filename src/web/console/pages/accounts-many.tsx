/** What operators do with many accounts of the list, and the file that opens many. */
import type { ComponentProps } from "preact";
import { csvOf } from "../../../accounts/csv.ts";
import { valueAt } from "../../../actions/columns.ts";
import { changePlans, changeStates, importAccountList, topUpAccounts } from "../../../actions/many.ts";
import { withOptions } from "../../shared/action-fields.ts";
import { counted } from "../../shared/numbers.ts";
import { newOperationId } from "../../shared/operation-id.ts";
import type { ListAction } from "../../shared/resource-page.tsx";
import { RowsDialog } from "../../shared/rows-dialog.tsx";
import { SaveButton } from "../../shared/save-button.tsx";
import type { ListedAccount } from "../types.ts";
import { PlansDialog } from "./account-plan.tsx";

const rowsAction = (title: string, props: Omit<ComponentProps<typeof RowsDialog>, "close">): ListAction => ({
  title,
  action: props.action,
  dialog: (close) => <RowsDialog {...props} close={close} />,
});

export const importFile = rowsAction("Import", { action: importAccountList });

const exported =
  "id plan state owner email external_id note invitation created_at balance.balances.total.credits";

function ChangePlans(props: Pick<ComponentProps<typeof RowsDialog>, "target" | "subject" | "close">) {
  return (
    <PlansDialog title={changePlans.title} close={props.close}>
      {(offered) => (
        <RowsDialog
          {...props}
          action={changePlans}
          inputs={(inputs) => withOptions(inputs, "plan", [["", "Choose a plan"], ...offered])}
        />
      )}
    </PlansDialog>
  );
}

export function manyAccounts(rows: readonly ListedAccount[]): readonly ListAction[] {
  const accounts = rows.map(({ id }) => id);
  const of = { target: { accounts }, subject: counted(accounts.length, "account") };
  const names = exported.split(" ");
  const load = async () =>
    new Blob([csvOf([names, ...rows.map((row) => names.map((name) => valueAt(row, name)))])]);
  return [
    rowsAction("Top up", {
      ...of,
      action: topUpAccounts,
      initial: { payment_id: newOperationId("console") },
    }),
    {
      title: "Change the plan",
      action: changePlans,
      dialog: (close) => <ChangePlans {...of} close={close} />,
    },
    rowsAction("Invite", {
      action: importAccountList,
      target: { csv: ["account", ...accounts].join("\n"), contacts: "keep" },
      title: `Invite the people of ${of.subject}`,
      initial: { invite: "link" },
      submit: "Make the links",
    }),
    rowsAction("Suspend or resume", { ...of, action: changeStates }),
    { title: "Export", node: <SaveButton text="Export" file="accounts.csv" load={load} /> },
  ];
}
