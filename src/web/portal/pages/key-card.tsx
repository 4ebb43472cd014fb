/** What is left of the caps and limits of an account, and of the key of a session. */
import { leftAt, planLimitNames, planLimits } from "../../../accounts/plan-limits.ts";
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
          rows={[...factsOf(key, columnsOf("key", "models expires_at")), ["Plan of the account", plan.id]]}
        />
      )}
      {key !== null && <CapPictures of={key.spending_caps} owner="this key" />}
      <CapPictures of={caps} owner="the account" />
      {planLimitNames.map((name) => (
        <LimitPicture key={name} of={limits.filter((limit) => limit.name === name)} />
      ))}
      {limits.length === 0 && <p class="quiet above">Requests and tokens per minute have no limit.</p>}
    </Card>
  );
}

/** What is full again so soon needs no time. */
const soonMs = 10_000;
const owners = { plan: "the plan, for all keys together", key: "this key" };

/** The one of plan and key that has less left, and the other one in words. */
function LimitPicture({ of: limits }: { of: OwnAccount["limits"] }) {
  const nowMs = Date.now();
  const states = limits.map((limit) => ({ ...limit, now: leftAt(limit, nowMs) }));
  const [limit, other] = states.toSorted((one, two) => one.now - two.now);
  if (limit === undefined) return null;
  const { now, most, full_at: fullAt } = limit;
  const textOf = (each: typeof limit) => `${wholeNumber(each.now)} of ${wholeNumber(each.most)} left`;
  return (
    <LeftBar name={planLimits[limit.name].label} left={textOf(limit)} percent={(now / most) * 100}>
      <span>
        of {owners[limit.of]}
        {other && `; of ${owners[other.of]}, ${textOf(other)}`}
      </span>
      {fullAt !== null && Date.parse(fullAt) > nowMs + soonMs && (
        <span>
          full again <Time at={fullAt} />
        </span>
      )}
    </LeftBar>
  );
}
