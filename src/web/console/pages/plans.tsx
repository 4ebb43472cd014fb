/** Plans with their versions and accounts, drafts of them, and a reload with its preview. */

import { planLimitNames, planLimits } from "../../../accounts/plan-limits.ts";
import { grantedCapText } from "../../../accounts/plan-text.ts";
import { periodTitle } from "../../../actions/fields.ts";
import { applyPlans, reloadConfiguration } from "../../../actions/service.ts";
import { get } from "../../shared/api.ts";
import { Card, PageHead } from "../../shared/layout.tsx";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import { type ListAction, useActions } from "../../shared/resource-page.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown, Warnings } from "../../shared/states.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import { useGet } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import type { Plan, PlanList, ReloadPreview } from "../types.ts";
import { planDraft, SettingChanges } from "./drafts.tsx";

export function PlansPage() {
  const plans = useGet<PlanList>("/admin/plans", { limit: 500 });
  const { button, dialog } = useActions(plans.reload);
  return (
    <>
      <PageHead title="Plans">{button(reload)}</PageHead>
      <Shown of={plans}>
        {({ data, configuration }) => (
          <>
            {configuration.current ? (
              <p class="quiet">The plans are those of the configuration, as this node last read it.</p>
            ) : (
              <div class="notice warn">
                <p>The configuration of this node has other plans than those in use:</p>
                <SettingChanges rows={configuration.changes} />
                {button(applying(configuration))}
              </div>
            )}
            {data.length === 0 && <Empty>There is no plan. Add one to inkwell.yaml, and reload.</Empty>}
            {data.map((plan) => (
              <PlanCard key={plan.id} plan={plan} />
            ))}
          </>
        )}
      </Shown>
      {dialog}
    </>
  );
}

const reload: ListAction = {
  title: "Reload the configuration",
  look: "primary",
  action: reloadConfiguration,
  parts: { preview: async () => <Preview of={await get<ReloadPreview>("/admin/reload")} /> },
};

function applying({ changes }: PlanList["configuration"]): ListAction {
  const intro = (
    <>
      <p>{applyPlans.form?.intro}</p>
      <SettingChanges rows={changes} />
    </>
  );
  return { title: "Apply the plans of the configuration", action: applyPlans, parts: { intro } };
}

type Version = Plan["versions"][number];

function grantText({ credits, every }: Version["base"]): string {
  return `${wholeNumber(credits)} each ${periodTitle(every)}`;
}

function PlanCard({ plan }: { plan: Plan }) {
  const { button, dialog } = useActions();
  const limitOf = (value: number | null) => (value === null ? "no limit" : wholeNumber(value));
  return (
    <Card
      title={plan.id}
      actions={
        <>
          {!plan.offered && <Badge text="retired" />}
          {button(planDraft(plan), `Change this plan: ${plan.id}`)}
          <Link to={`${pathTo("accounts")}?plan=${encodeURIComponent(plan.id)}`}>
            {counted(plan.accounts, "account")}
          </Link>
        </>
      }
    >
      <Table
        caption={`Versions of ${plan.id}, newest first`}
        rows={plan.versions}
        columns={[
          ...columnsOf("plan", "version created_at base overage spending_caps", {
            base: ({ base }: Version) => grantText(base),
            overage: ({ overage }: Version) => grantText(overage),
            spending_caps: ({ spending_caps: caps }: Version) =>
              caps.map((cap) => grantedCapText(cap, periodTitle)).join("; ") || "none",
          }),
          ...planLimitNames.map((name) => ({
            title: planLimits[name].label,
            isNumber: true,
            cell: (plan: Version) => limitOf(plan.limits[name]),
          })),
          ...columnsOf("plan", "models"),
        ]}
      />
      {dialog}
    </Card>
  );
}

function Preview({ of: { changes, needs_restart: needsRestart, warnings } }: { of: ReloadPreview }) {
  return (
    <>
      {changes.length === 0 ? <p>The configuration has not changed.</p> : <SettingChanges rows={changes} />}
      {needsRestart.length > 0 && <p>Only a restart changes {needsRestart.join(", ")}.</p>}
      <Warnings of={warnings} />
    </>
  );
}
