/** The key of the session: its budget as a picture, and its limits. */
import { exactCredits, microPerCredit } from "../../../units.ts";
import { periodTitle } from "../../shared/key-form.tsx";
import { Card } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import type { Key } from "../../shared/types.ts";
import { Facts, Time } from "../../shared/values.tsx";
import { keyTitle } from "../key-names.ts";

export function Budget({ of: key }: { of: Key }) {
  const { budget, limits } = key;
  const perMinute = (limit: number | null) =>
    limit === null ? "no limit" : `${wholeNumber(limit)} a minute`;
  return (
    <Card title={`Your key ${keyTitle(key)}`}>
      {budget !== null && <BudgetPicture of={budget} />}
      <Facts
        rows={[
          [
            "Budget",
            budget === null
              ? "none: the key can use the whole balance"
              : `refills every ${periodTitle(budget.every)}`,
          ],
          ["Models", key.models.includes("*") ? "all models of the plan" : key.models.join(", ")],
          ["Requests", perMinute(limits.requests_per_minute)],
          ["Tokens", perMinute(limits.tokens_per_minute)],
          ["At once", limits.concurrent === null ? "no limit" : wholeNumber(limits.concurrent)],
          ["Expires", <Time key="expires" at={key.expires_at} />],
        ]}
      />
    </Card>
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
