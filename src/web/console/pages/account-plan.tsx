/** A change of the plan: the preview shows credits and refreshes before and after. */

import { changePlan } from "../../../actions/accounts.ts";
import { exactCredits } from "../../../units.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { withOptions } from "../../shared/action-fields.ts";
import { apiPath, get, send } from "../../shared/api.ts";
import { FailedDialog } from "../../shared/form-dialog.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Time } from "../../shared/values.tsx";
import type { Account, Plan, PlanPreview } from "../types.ts";

export function ChangePlan({ account, close }: { account: Account; close(isDone: boolean): void }) {
  const plans = useLoaded("plans", (signal) => get<Page<Plan>>("/admin/plans", { limit: 500 }, signal));
  const title = `Change the plan of ${account.id}`;
  if (plans.value === null) {
    const failed = { title, retry: plans.reload, close: () => close(false) };
    return plans.error && <FailedDialog {...failed} error={plans.error} />;
  }
  const offered = plans.value.data.filter((plan) => plan.offered || plan.id === account.plan);
  const other = offered.find(({ id }) => id !== account.plan);
  return (
    <ActionDialog
      action={changePlan}
      target={{ account: account.id }}
      subject={account.id}
      intro={
        <p>
          The plan is {account.plan}
          {account.next_plan !== null && `, and ${account.next_plan} from the next refresh on`}.
        </p>
      }
      initial={{ plan: other?.id ?? account.plan }}
      inputs={(inputs) =>
        withOptions(inputs, "plan", [
          ...offered.map(
            ({ id }) => [id, id === account.plan ? `${id} (present; cancels a change)` : id] as const,
          ),
        ])
      }
      preview={async (json) => {
        const path = apiPath("accounts", account.id, "plan-preview");
        return <Preview preview={await send<PlanPreview>("POST", path, json)} />;
      }}
      close={close}
    />
  );
}

function Preview({ preview }: { preview: PlanPreview }) {
  const { before, after, effective_at, new_caps: newCaps } = preview;
  const rows = (["base", "overage"] as const).map((bucket) => ({ bucket, before, after }));
  const creditsOf = ({ balance }: PlanPreview["after"], bucket: "base" | "overage") =>
    `${wholeNumber(balance.balances[bucket].credits)} of ${wholeNumber(balance.caps[bucket].credits)}`;
  const capsOf = ({ spending_caps: caps }: PlanPreview["after"]) =>
    caps
      .map((cap) => `${exactCredits(cap.left_micro)} of ${wholeNumber(cap.credits)} (${cap.name})`)
      .join(", ");
  return (
    <>
      <p>
        {before.plan} → {after.plan}, effective <Time at={effective_at} />. Nothing has changed yet.
      </p>
      <Table
        caption="Credits before and after the change"
        rows={rows}
        keyOf={({ bucket }) => bucket}
        columns={[
          { title: "Credits", cell: ({ bucket }) => bucket },
          { title: "Before", isNumber: true, cell: (row) => creditsOf(row.before, row.bucket) },
          { title: "After", isNumber: true, cell: (row) => creditsOf(row.after, row.bucket) },
          {
            title: "Refreshes",
            cell: ({ bucket, after: { balance } }) => <Time at={balance[`${bucket}Window`].refreshesAt} />,
          },
        ]}
      />
      {before.spending_caps.length + after.spending_caps.length > 0 && (
        <p>
          Left of the caps before: {capsOf(before) || "none"}. After: {capsOf(after) || "none"}.
        </p>
      )}
      {newCaps.length > 0 && <p>These caps begin then, with nothing spent: {newCaps.join(", ")}.</p>}
    </>
  );
}
