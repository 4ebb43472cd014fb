/** What is left of the caps and limits of an account, and of the key of a session. */
import { leftAt, planLimits } from "../../../accounts/plan-limits.ts";
import { LeftBar } from "../../shared/balance.tsx";
import { CapPictures, keyTitle } from "../../shared/key-values.tsx";
import { Card } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { columnsOf, factsOf } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import { Facts, Time } from "../../shared/values.tsx";
import type { AccountState, OwnAccount } from "../types.ts";

interface LimitsProps {
  /** Null: a person has no limits but those of the plan. */
  ofKey: Key | null;
  state: AccountState;
  limits: OwnAccount["limits"];
}

export function Limits({ ofKey: key, state: { plan, spending_caps: caps }, limits }: LimitsProps) {
  return (
    <Card title={key === null ? `Plan ${plan.id}` : `Your key ${keyTitle(key)}`}>
      {key !== null && (
        <Facts
          rows={[
            ...factsOf(
              key,
              columnsOf("key", "models expires_at", {
                models: ({ models }: Key) =>
                  models.includes("*") ? "all models of the plan" : models.join(", "),
              }),
            ),
            ["Plan of the account", plan.id],
          ]}
        />
      )}
      {key !== null && <CapPictures of={key.spending_caps} owner="this key" />}
      <CapPictures of={caps} owner="the account" />
      {limits.map((limit) => (
        <LimitPicture key={`${limit.of} ${limit.name}`} of={limit} />
      ))}
      {limits.length === 0 && <p class="quiet above">Requests and tokens per minute have no limit.</p>}
    </Card>
  );
}

function LimitPicture({ of: limit }: { of: OwnAccount["limits"][number] }) {
  const { name, of: owner, most, full_at: fullAt } = limit;
  const left = leftAt(limit, Date.now());
  const { label } = planLimits[name];
  return (
    <LeftBar
      name={label}
      left={`${wholeNumber(left)} of ${wholeNumber(most)} left`}
      label={`${label}: ${wholeNumber(left)} of ${wholeNumber(most)} left`}
      percent={(left / most) * 100}
    >
      <span>{owner === "plan" ? "of the plan, for all keys together" : "of this key"}</span>
      {fullAt !== null && left < most && (
        <span>
          full again <Time at={fullAt} />
        </span>
      )}
    </LeftBar>
  );
}
