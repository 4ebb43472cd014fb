/** Drafts of plans and prices: a form, then the lines to paste, whom they concern and what changes. */
import { draftModel, draftPlan, draftSentence } from "../../../actions/drafts.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { Code } from "../../shared/copy.tsx";
import { counted } from "../../shared/numbers.ts";
import { columnsOf, Table } from "../../shared/table.tsx";
import type { Draft, Model, Plan, SettingChange } from "../types.ts";

export function DraftPlan({ plan, close }: { plan: Plan; close(): void }) {
  const [version] = plan.versions;
  return (
    <ActionDialog
      action={draftPlan}
      target={{ plan: plan.id }}
      subject={plan.id}
      intro={<p>{counted(plan.accounts, "account is", "accounts are")} on this plan.</p>}
      before={{ ...version, ...version?.limits }}
      result={(draft: Draft) => <DraftResult of={draft} part={`the plan ${plan.id}`} />}
      close={close}
    />
  );
}

export function DraftModel({ model: { id, pricing }, close }: { model: Model; close(): void }) {
  return (
    <ActionDialog
      action={draftModel}
      target={{ model: id }}
      subject={id}
      before={pricing}
      result={(draft: Draft) => <DraftResult of={draft} part={`the price of the model ${id}`} />}
      close={close}
    />
  );
}

function DraftResult({ of, part }: { of: Draft; part: string }) {
  return (
    <>
      <p>{draftSentence(of)}</p>
      <SettingChanges rows={of.changes} />
      <Code title="inkwell.yaml" text={of.yaml} copyLabel="Copy the lines" label="Lines for inkwell.yaml" />
      <p class="quiet">
        Nothing has changed. Put the lines in the place of {part}, and reload: the preview shows the same.
      </p>
    </>
  );
}

/** What would change, with the values before and after. */
export function SettingChanges({ rows }: { rows: readonly SettingChange[] }) {
  return (
    <Table
      caption="Settings before and after"
      rows={rows}
      keyOf={({ setting }) => setting}
      columns={columnsOf("settingChange", "setting before after")}
    />
  );
}
