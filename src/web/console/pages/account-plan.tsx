/** A change of the plan: the preview shows credits and refreshes before and after. */

import type { ComponentChildren } from "preact";
import { changePlan } from "../../../actions/accounts.ts";
import { exactCredits } from "../../../units.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { withOptions } from "../../shared/action-fields.ts";
import { apiPath, get, send } from "../../shared/api.ts";
import { LoadedDialog } from "../../shared/form-dialog.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { Time } from "../../shared/values.tsx";
import type { Account, Plan, PlanPreview } from "../types.ts";

interface PlansProps {
  title: string;
  close(isDone: boolean): void;
  children(offered: readonly (readonly [id: string, title: string])[]): ComponentChildren;
}

/** A dialog in which one of the offered plans is chosen. */
export function PlansDialog({ children, ...props }: PlansProps) {
  return (
    <LoadedDialog
      {...props}
      of="plans"
      load={(signal) => get<Page<Plan>>("/admin/plans", { limit: 500 }, signal)}
    >
      {({ data }) => children(data.filter(({ offered }) => offered).map(({ id }) => [id, id]))}
    </LoadedDialog>
  );
}

export function ChangePlan({ account, close }: { account: Account; close(isDone: boolean): void }) {
  const { id: subject, plan, next_plan: next } = account;
  return (
    <PlansDialog title={`Change the plan of ${subject}`} close={close}>
      {(offered) => {
        const others = offered.filter(([id]) => id !== plan);
        return (
          <ActionDialog
            action={changePlan}
            target={{ account: subject }}
            subject={subject}
            intro={
              <p>
                The plan is {plan}
                {next !== null && `, and ${next} from the next refresh on`}.
              </p>
            }
            initial={{ plan: others[0]?.[0] ?? plan }}
            inputs={(inputs) =>
              withOptions(inputs, "plan", [...others, [plan, `${plan} (present; cancels a change)`]])
            }
            preview={async (json) => {
              const path = apiPath("accounts", subject, "plan-preview");
              return <Preview preview={await send<PlanPreview>("POST", path, json)} />;
            }}
            close={close}
          />
        );
      }}
    </PlansDialog>
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
