/**
 * Ends expired holds, which processes that died have left behind. Any number of processes may
 * sweep one store: each hold is checked again under the lock and ends once.
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { HoldRow } from "../ledger/rows.ts";
import type { Store } from "./store.ts";

/** Holds ended per read. They share a commit with requests, which must stay short. */
const sweepMax = 64;

/**
 * Ends all holds that have expired now. Holds whose account is damaged or locked are left behind,
 * and the first such failure is thrown at the end.
 */
export async function endExpiredHolds(
  store: Pick<Store, "overdueHolds" | "times">,
  ledger: Pick<Ledger, "apply">,
  isStopped: () => boolean,
): Promise<void> {
  const failures: unknown[] = [];
  for (let after: HoldRow | undefined; !isStopped(); ) {
    const overdue = await store.overdueHolds(store.times().nowMs, { after, limit: sweepMax });
    const outcomes = await Promise.allSettled(
      overdue.map(({ account, id }) => ledger.apply({ kind: "expire", account, requestId: id })),
    );
    for (const outcome of outcomes) if (outcome.status === "rejected") failures.push(outcome.reason);
    after = overdue.at(-1);
    if (overdue.length < sweepMax) break;
  }
  if (failures.length > 0) throw failures[0];
}
