/** Caps as the APIs show them: of the plan of an account, or of a key. */
import Type from "typebox";
import type { KeyCap } from "../ledger/cap-rows.ts";
import type { CapState } from "../ledger/caps.ts";
import { alignments } from "../ledger/windows.ts";
import { creditsIn } from "../units.ts";
import { count, isoTime, micro, objectFor, text, time } from "./json-objects.ts";

/** Operators set the caps of plans. */
type ShownCap = CapState & Partial<Pick<KeyCap, "byOperator">>;

const capObject = objectFor<ShownCap>("SpendingCap")({
  name: [text, (cap) => cap.name],
  credits: [count, (cap) => creditsIn(cap.amountMicro)],
  every: [text, (cap) => cap.every],
  align: [Type.Enum([...alignments]), (cap) => cap.align],
  timezone: [text, (cap) => cap.timezone],
  models: [
    Type.Array(text, { description: "patterns of model ids; `*` is every model" }),
    (cap) => [...cap.models],
  ],
  by_operator: [
    Type.Boolean({
      description:
        "whether an operator has set it: people can only lower its credits, and not those of a plan",
    }),
    (cap) => cap.byOperator ?? true,
  ],
  left_micro: [micro, (cap) => cap.leftMicro],
  spent_micro: [micro, (cap) => cap.spentMicro],
  held_micro: [micro, (cap) => cap.heldMicro],
  started_at: [time, (cap) => isoTime(cap.fromMs)],
  refreshes_at: [time, (cap) => isoTime(cap.untilMs)],
});

export const spendingCaps = Type.Array(capObject.schema);

export function spendingCapsObject(caps: readonly ShownCap[]) {
  return caps.map(capObject.of);
}
