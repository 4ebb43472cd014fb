/** Compares the row of a key with its facts and its holds. Pure. */
import type { MicroCredits } from "../units.ts";
import { amountOf } from "./grants.ts";
import { keyFactsOf } from "./key-facts.ts";
import { costOf, priceOf } from "./pricing.ts";
import type { HoldRow, KeyRow } from "./rows.ts";
import { isSameBoundary } from "./windows.ts";

type Fault = Record<string, string | null>;

/** Compares a key with the row that its facts make. Returns the fields at fault. */
export function keyFaults(row: KeyRow, folded: KeyRow | undefined): Fault[] {
  const { account, id } = row;
  if (folded === undefined) return [{ account, key: id, problem: "has no facts" }];
  const middleMs = Math.floor(((row.budgetFromMs ?? 0) + (row.budgetUntilMs ?? 0)) / 2);
  const atMs = Math.max(middleMs, folded.budgetFromMs ?? 0);
  const facts = new Map(keyFactsOf(row, atMs));
  const expected = new Map(keyFactsOf(folded, atMs));
  const moved = row.budgetAlign === "calendar" ? movedFields(facts, expected) : [];
  // Charges of other accounts count against the budget of a front end.
  const mayDiffer = row.actsFor === null ? moved : [...moved, "budgetSpentMicro"];
  return [...facts].flatMap(([field, found]) => {
    const wanted = expected.get(field) ?? "none";
    const isSame = found === wanted || mayDiffer.includes(field);
    return isSame ? [] : [{ account, key: id, field, found, expected: wanted }];
  });
}

/**
 * Returns the fields that differ because the rules of a time zone have changed: the window of a
 * budget keeps its boundaries, and counts the charges between them.
 */
function movedFields(
  found: ReadonlyMap<string, string>,
  expected: ReadonlyMap<string, string>,
): readonly string[] {
  const boundaries = ["budgetFromMs", "budgetUntilMs"];
  const isMoved = boundaries.every((field) =>
    isSameBoundary(Number(found.get(field)), Number(expected.get(field))),
  );
  if (!isMoved) return [];
  const beginsElsewhere = found.get("budgetFromMs") !== expected.get("budgetFromMs");
  return beginsElsewhere ? [...boundaries, "budgetAnchorMs", "budgetSpentMicro"] : boundaries;
}

/** Compares what a key holds with the holds that have it. Returns the row at fault, or null. */
export function keyHeldFault(key: KeyRow, holds: readonly HoldRow[]): Fault | null {
  const own = holds.filter((hold) => hold.key === key.id);
  const found = [key.holds, key.heldMicro, key.runningCostMicro].join(" ");
  const expected = [own.length, sum(own.map(({ takings }) => amountOf(takings))), sum(own.map(costOfHold))];
  if (found === expected.join(" ")) return null;
  return { account: key.account, key: key.id, found, expected: expected.join(" ") };
}

export function costOfHold(hold: HoldRow): MicroCredits {
  return costOf(priceOf(hold), hold);
}

export function sum(amounts: readonly MicroCredits[]): MicroCredits {
  return amounts.reduce((total, amount) => total + amount, 0);
}
