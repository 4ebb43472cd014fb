/** The caps of an account and of the key of a session as pictures, and their limits. */
import { planLimitNames, planLimits } from "../../../accounts/plan-limits.ts";
import { CapPictures, keyTitle } from "../../shared/key-values.tsx";
import { Card } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { columnsOf, factsOf } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import { Facts } from "../../shared/values.tsx";
import type { AccountState } from "../types.ts";

export function OwnKey({ of: key, state }: { of: Key; state: AccountState }) {
  const { plan } = state;
  return (
    <Card title={`Your key ${keyTitle(key)}`}>
      <CapPictures of={key.spending_caps} owner="this key" />
      <CapPictures of={state.spending_caps} owner="the account" />
      <Facts
        rows={[
          ...factsOf(
            key,
            columnsOf("key", "models", {
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
export function PlanLimits({ of: { plan, spending_caps: caps } }: { of: AccountState }) {
  return (
    <Card title={`Plan ${plan.id}`}>
      <CapPictures of={caps} owner="the account" />
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
