/** Caps as the APIs show them: of the plan of an account, or of a key. */
import Type, { type Static } from "typebox";
import type { KeyCap } from "../ledger/cap-rows.ts";
import type { CapState } from "../ledger/caps.ts";
import { alignments } from "../ledger/windows.ts";
import { creditsIn } from "../units.ts";
import { component, count, isoTime, micro, text, time } from "./json-objects.ts";

const spendingCap = component("SpendingCap", {
  name: text,
  credits: count,
  every: text,
  align: Type.Enum([...alignments]),
  timezone: text,
  models: Type.Array(text, { description: "patterns of model ids; `*` is every model" }),
  by_operator: Type.Boolean({
    description: "whether an operator has set it: people can only lower its credits, and not those of a plan",
  }),
  left_micro: micro,
  spent_micro: micro,
  held_micro: micro,
  started_at: time,
  refreshes_at: time,
});

export const spendingCaps = Type.Array(spendingCap);

/** Operators set the caps of plans. */
export function spendingCapsObject(
  caps: readonly (CapState & Partial<Pick<KeyCap, "byOperator">>)[],
): Static<typeof spendingCap>[] {
  return caps.map((cap) => ({
    name: cap.name,
    credits: creditsIn(cap.amountMicro),
    every: cap.every,
    align: cap.align,
    timezone: cap.timezone,
    models: [...cap.models],
    by_operator: cap.byOperator ?? true,
    left_micro: cap.leftMicro,
    spent_micro: cap.spentMicro,
    held_micro: cap.heldMicro,
    started_at: isoTime(cap.fromMs),
    refreshes_at: isoTime(cap.untilMs),
  }));
}
