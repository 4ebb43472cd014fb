/** Compares the row of a key with its facts and its holds. Pure. */
import type { CapCounter, CappedRow } from "./cap-rows.ts";
import { addRunning, isSameCap } from "./caps.ts";
import { factText } from "./fact-values.ts";
import { amountOf } from "./grants.ts";
import { keyFactsOf } from "./key-facts.ts";
import { costOf, priceOf } from "./pricing.ts";
import type { CountRow, HoldRow, KeyRow } from "./rows.ts";
import { isSameBoundary } from "./windows.ts";

type Fault = Record<string, string | null>;

/** Compares a key with the row that its facts make. Returns the fields at fault. */
export function keyFaults(row: KeyRow, folded: KeyRow | undefined): Fault[] {
  const { account, id } = row;
  if (folded === undefined) return [{ account, key: id, problem: "has no facts" }];
  const expected = new Map(keyFactsOf(folded));
  const faults = keyFactsOf(row).flatMap(([field, found]) => {
    const wanted = expected.get(field) ?? "none";
    return found === wanted ? [] : [{ account, key: id, field, found, expected: wanted }];
  });
  // Charges of other accounts count against the caps of a front end.
  if (row.actsFor !== null) return faults;
  return [...faults, ...counterFaults(row, folded).map((fault) => ({ account, key: id, ...fault }))];
}

/** Compares what caps have counted with what their charges add up to. */
export function counterFaults(
  row: Pick<CappedRow, "counters">,
  folded: Pick<CappedRow, "counters">,
): Fault[] {
  return Array.from({ length: Math.max(row.counters.length, folded.counters.length) }, (_, n) => {
    const [found, expected] = [row.counters[n], folded.counters[n]];
    if (found !== undefined && expected !== undefined && isSameCount(found, expected)) return [];
    return [{ field: "counters", found: textOf(found), expected: textOf(expected) }];
  }).flat();
}

/**
 * If the rules of a time zone have changed, a window keeps its boundaries, and counts the charges
 * between them.
 */
function isSameCount(one: CapCounter, other: CapCounter): boolean {
  if (textOf(one) === textOf(other)) return true;
  const isMoved = isSameBoundary(one.fromMs, other.fromMs) && isSameBoundary(one.untilMs, other.untilMs);
  const mayDiffer = one.align === "calendar" && isSameCap(one, other) && isMoved;
  const [first, second] = [one, other].map(({ anchorMs, spentMicro }) => `${anchorMs} ${spentMicro}`);
  return mayDiffer && (one.fromMs !== other.fromMs || first === second);
}

function textOf(counter: CapCounter | undefined): string {
  return counter === undefined ? "none" : factText(counter);
}

/** Compares what an account or a key has running with its holds. Returns the fault, or null. */
export function runningFault(row: CountRow & CappedRow, holds: readonly HoldRow[]): Fault | null {
  const folded: Pick<CappedRow, "running"> = { running: [] };
  for (const hold of holds) {
    const amounts = { heldMicro: amountOf(hold.takings), costMicro: costOf(priceOf(hold), hold) };
    addRunning(folded, hold.model, amounts);
  }
  const [found, expected] = [runningText(row.holds, row), runningText(holds.length, folded)];
  return found === expected ? null : { found, expected };
}

function runningText(holds: number, { running }: Pick<CappedRow, "running">): string {
  const models = running.map(({ model, heldMicro, costMicro }) => `${model} ${heldMicro} ${costMicro}`);
  return [holds, ...models.toSorted()].join(", ");
}
