/** Plans with their versions and accounts, and a reload of the configuration with its result. */

import { planLimitNames, planLimits } from "../../../accounts/plan-limits.ts";
import { applyPlans, reloadConfiguration } from "../../../actions/service.ts";
import { ActionButton } from "../../shared/action-button.tsx";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { get } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { periodTitle } from "../../shared/key-values.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import type { Plan, PlanList, ReloadPreview } from "../types.ts";

export function PlansPage() {
  const plans = useLoaded("plan list", (signal) => get<PlanList>("/admin/plans", { limit: 500 }, signal));
  const { open, show, close } = useAction<"reload" | "apply">(plans.reload);
  return (
    <>
      <PageHead title="Plans">
        <ActionButton action={reloadConfiguration} class="primary" onClick={() => show("reload")}>
          Reload the configuration
        </ActionButton>
      </PageHead>
      <Shown of={plans}>
        {({ data, configuration }) => (
          <>
            <Difference of={configuration} apply={() => show("apply")} />
            {data.length === 0 && <Empty>There is no plan. Add one to inkwell.yaml, and reload.</Empty>}
            {data.map((plan) => (
              <PlanCard key={plan.id} plan={plan} />
            ))}
          </>
        )}
      </Shown>
      {open === "reload" && <ReloadDialog close={close} />}
      {open === "apply" && plans.value && <ApplyDialog of={plans.value.configuration} close={close} />}
    </>
  );
}

type Version = Plan["versions"][number];

function grantText({ credits, every }: Version["base"]): string {
  return `${wholeNumber(credits)} each ${periodTitle(every)}`;
}

function grantedCapText(cap: Version["spending_caps"][number]): string {
  const named = cap.name === cap.every ? "" : `${cap.name}: `;
  const covered = cap.models.includes("*") ? "" : ` of ${cap.models.join(", ")}`;
  return `${named}${grantText(cap)}${covered}`;
}

function PlanCard({ plan }: { plan: Plan }) {
  const limitOf = (value: number | null) => (value === null ? "no limit" : wholeNumber(value));
  return (
    <Card
      title={plan.id}
      actions={
        <>
          {!plan.offered && <Badge text="retired" />}
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
              caps.map(grantedCapText).join("; ") || "none",
          }),
          ...planLimitNames.map((name) => ({
            title: planLimits[name].label,
            isNumber: true,
            cell: (plan: Version) => limitOf(plan.limits[name]),
          })),
          ...columnsOf("plan", "models"),
        ]}
      />
    </Card>
  );
}

type Configured = PlanList["configuration"];

function Difference({ of: configured, apply }: { of: Configured; apply(): void }) {
  if (configured.current) {
    return <p class="quiet">The plans are those of the configuration, as this node last read it.</p>;
  }
  return (
    <div class="notice warn">
      <p>The configuration of this node has other plans than those in use:</p>
      <Changes of={configured} />
      <ActionButton action={applyPlans} onClick={apply}>
        Apply the plans of the configuration
      </ActionButton>
    </div>
  );
}

function Changes({ of: { added, changed, retired, plans } }: { of: Configured }) {
  const granted = (id: string) => {
    const plan = plans.find((each) => each.id === id);
    return plan ? `: base ${grantText(plan.base)}, overage ${grantText(plan.overage)}` : "";
  };
  return (
    <ul>
      {added.map((id) => (
        <li key={id}>
          adds {id}
          {granted(id)}
        </li>
      ))}
      {changed.map((id) => (
        <li key={id}>
          changes {id}
          {granted(id)}
        </li>
      ))}
      {retired.map((id) => (
        <li key={id}>retires {id}; its accounts keep it</li>
      ))}
    </ul>
  );
}

function ApplyDialog({ of: configured, close }: { of: Configured; close(isDone: boolean): void }) {
  return (
    <ActionDialog
      action={applyPlans}
      intro={
        <>
          <p>{applyPlans.form?.intro}</p>
          <Changes of={configured} />
        </>
      }
      close={close}
    />
  );
}

function ReloadDialog({ close }: { close(isDone: boolean): void }) {
  return (
    <ActionDialog
      action={reloadConfiguration}
      preview={async () => <Preview of={await get<ReloadPreview>("/admin/reload")} />}
      close={close}
    />
  );
}

function Preview({ of: { changes, needs_restart: needsRestart, warnings } }: { of: ReloadPreview }) {
  return (
    <>
      {changes.length === 0 ? <p>The configuration has not changed.</p> : <SettingChanges rows={changes} />}
      {needsRestart.length > 0 && <p>Only a restart changes {needsRestart.join(", ")}.</p>}
      {warnings.map((warning) => (
        <p key={warning} class="notice warn">
          {warning}
        </p>
      ))}
    </>
  );
}

/** What would change, with the values before and after. */
function SettingChanges({ rows }: { rows: ReloadPreview["changes"] }) {
  return (
    <Table
      caption="Settings before and after"
      rows={rows}
      keyOf={({ setting }) => setting}
      columns={columnsOf("settingChange", "setting before after")}
    />
  );
}
