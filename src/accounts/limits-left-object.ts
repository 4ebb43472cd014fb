/** The limits of a plan and a key, with how much of each is left now. Holders of keys see them. */
import Type, { type Static } from "typebox";
import type { BalanceView } from "../ledger/balance.ts";
import { limitsLeft } from "../ledger/rates.ts";
import { limitsIn } from "../ledger/rows.ts";
import { given } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import { component, count, isoTimeOrNull, orNull } from "./json-objects.ts";
import { planLimitNames, planLimits } from "./plan-limits.ts";
import { isPerson, type Viewer } from "./portal-viewer.ts";

const limitLeft = component("LimitLeft", {
  name: Type.Enum([...planLimitNames]),
  of: Type.Enum(["plan", "key"], { description: "`plan`: it counts for all keys of the account together" }),
  most: count,
  left: Type.Integer({ minimum: 0, description: "that can be used at once" }),
  full_at: orNull(
    Type.String({ format: "date-time", description: "the time at which all of it is there again" }),
  ),
});

/** Limits that are not set have no row. */
export const limitsLeftSchema = Type.Array(limitLeft);

/** `nowMs`: elapsed time. A person has no limits but those of the plan. */
export function limitsLeftObject(
  view: BalanceView,
  viewer: Viewer,
  nowMs: EpochMs,
): Static<typeof limitsLeftSchema> {
  const ofKey = isPerson(viewer)
    ? []
    : limitsLeft({ scope: "key", limits: given(limitsIn(viewer.key)), row: viewer.key }, nowMs);
  const all = [...view.limitsLeft, ...ofKey];
  return planLimitNames.flatMap((name) =>
    all
      .filter((each) => each.name === planLimits[name].row)
      .map(({ of, limit, remaining, resetMs }) => ({
        name,
        of: of === "account" ? ("plan" as const) : ("key" as const),
        most: limit,
        left: remaining,
        full_at: isoTimeOrNull(resetMs === 0 ? null : nowMs + resetMs),
      })),
  );
}
