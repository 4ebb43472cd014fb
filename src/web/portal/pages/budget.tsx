/** The key of the session: its budget as a picture, and its limits with those of the plan. */
import { planLimitNames, planLimits } from "../../../accounts/plan-limits.ts";
import { exactCredits, microPerCredit } from "../../../units.ts";
import { keyTitle, periodTitle } from "../../shared/key-values.tsx";
import { Card } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { columnsOf, factsOf } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import { Facts, Time } from "../../shared/values.tsx";
import type { AccountState } from "../types.ts";

export function Budget({ of: key, plan }: { of: Key; plan: AccountState["plan"] }) {
  const { budget } = key;
  return (
    <Card title={`Your key ${keyTitle(key)}`}>
      {budget !== null && <BudgetPicture of={budget} />}
      <Facts
        rows={[
          ...factsOf(
            key,
            columnsOf("key", "budget models", {
              budget: () =>
                budget === null
                  ? "none: the key can use the whole balance"
                  : `refills every ${periodTitle(budget.every)}`,
              models: ({ models }: Key) =>
                models.includes("*") ? "all models of the plan" : models.join(", "),
            }),
          ),
          ["Plan of the account", plan.id],
          ...planLimitNames.map(
            (name) =>
              [
                planLimits[name].label,
                <Limit key={name} ofKey={key.limits[name]} ofPlan={plan.limits[name]} />,
              ] as const,
          ),
          ...factsOf(key, columnsOf("key", "expires_at")),
        ]}
      />
    </Card>
  );
}

/** A person has no limits but those of the plan. */
export function PlanLimits({ plan }: { plan: AccountState["plan"] }) {
  return (
    <Card title={`Plan ${plan.id}`}>
      <Facts
        rows={planLimitNames.map(
          (name) =>
            [
              planLimits[name].label,
              plan.limits[name] === null ? "no limit" : wholeNumber(plan.limits[name]),
            ] as const,
        )}
      />
    </Card>
  );
}

/** The smaller limit, and where it comes from. Limits of the plan count for all keys together. */
function Limit(props: { ofKey: number | null; ofPlan: number | null }) {
  const { ofKey, ofPlan } = props;
  if (ofKey === null && ofPlan === null) return "no limit";
  const isOfPlan = ofPlan !== null && (ofKey === null || ofPlan <= ofKey);
  const other = isOfPlan ? ofKey : ofPlan;
  return (
    <>
      {wholeNumber(isOfPlan ? ofPlan : ofKey)}{" "}
      <span class="quiet">
        ({isOfPlan ? "plan, for all keys together" : "this key"}
        {other !== null &&
          `; ${isOfPlan ? "this key" : "plan, for all keys together"}: ${wholeNumber(other)}`}
        )
      </span>
    </>
  );
}

function BudgetPicture({ of: budget }: { of: NonNullable<Key["budget"]> }) {
  const percent = Math.floor((Math.max(0, budget.left_micro) / (budget.credits * microPerCredit)) * 100);
  return (
    <div class="bucket above">
      <p>
        <strong>Budget of this key</strong>
        <span class="number">
          {exactCredits(budget.left_micro)} of {wholeNumber(budget.credits)} left
        </span>
      </p>
      <div class="bar" role="img" aria-label={`${percent} % of the budget are left`}>
        <i style={{ width: `${percent}%` }} />
      </div>
      <p class="quiet">
        <span>
          spent {exactCredits(budget.spent_micro)}
          {budget.held_micro > 0 && `, held ${exactCredits(budget.held_micro)}`}
        </span>
        <span>
          refills <Time at={budget.refreshes_at} />
        </span>
      </p>
    </div>
  );
}
