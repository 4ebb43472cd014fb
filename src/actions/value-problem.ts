/** Rules of texts that no schema can have: for the API and the command line. */
import { idProblem, noOverlap, overlapRule } from "../accounts/value-rules.ts";
import { isPeriod, isRefillPeriod, isTimezone, refillPeriodRule } from "../ledger/windows.ts";
import { timezoneRule } from "../units.ts";
import type { Field } from "./field.ts";

/** Returns what is wrong with a text, as the rest of a sentence about its field. Null: nothing. */
export function textProblem(check: Extract<Field, { kind: "text" }>["check"], text: string): string | null {
  switch (check) {
    case "overlap":
      return text === noOverlap || isPeriod(text) ? null : `must be ${overlapRule}.`;
    case "id": {
      const problem = idProblem(text);
      return problem && `${problem}. Nothing has changed. Send the id in its plain form.`;
    }
    case "refill period":
      return isRefillPeriod(text) ? null : `must be ${refillPeriodRule}.`;
    case "timezone":
      return isTimezone(text) ? null : `must be ${timezoneRule}.`;
    default:
      return null;
  }
}
