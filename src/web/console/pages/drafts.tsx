/** Drafts of plans and prices: a form, then the lines to paste, whom they concern and what changes. */
import { draftModel, draftPlan, draftSentence } from "../../../actions/drafts.ts";
import { Code } from "../../shared/copy.tsx";
import { counted } from "../../shared/numbers.ts";
import type { ListAction } from "../../shared/resource-page.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import type { Draft, Model, Plan, SettingChange } from "../types.ts";

const resultOf = (part: string) => (draft: Draft) => <DraftResult of={draft} part={part} />;

/** A draft of a changed plan. */
export function planDraft({ id, accounts, versions: [version] }: Plan): ListAction {
  const intro = <p>{counted(accounts, "account is", "accounts are")} on this plan.</p>;
  const before = { ...version, ...version?.limits };
  const of = { target: { plan: id }, subject: id, result: resultOf(`the plan ${id}`) };
  return { title: "Change this plan", action: draftPlan, parts: { ...of, intro, before } };
}

export function priceDraft({ id, pricing: before }: Model): ListAction {
  const of = { target: { model: id }, subject: id, result: resultOf(`the price of the model ${id}`) };
  return { title: "Change its prices", action: draftModel, parts: { ...of, before } };
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
