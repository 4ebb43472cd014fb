/**
 * Commits what time does to accounts that nobody uses: ends expired holds, which processes that
 * died have left behind, and applies scheduled plans and ends. Any number of processes may sweep
 * one store: everything is checked again under the lock and happens once.
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { HoldRow } from "../ledger/rows.ts";
import type { Store } from "./store.ts";

/** Rows read at once. Their operations share a commit with requests, which must stay short. */
const sweepMax = 64;

type SweptLedger = Pick<Ledger, "apply">;

/** Ends all holds that have expired now. */
export async function endExpiredHolds(
  store: Pick<Store, "overdueHolds" | "times">,
  ledger: SweptLedger,
  isStopped: () => boolean,
): Promise<void> {
  await sweep<HoldRow>(
    (after) => store.overdueHolds(store.times().nowMs, { after, limit: sweepMax }),
    ({ account, id }) => ledger.apply({ kind: "expire", account, requestId: id }),
    isStopped,
  );
}

/** Applies what is due on accounts with a scheduled plan or an end, so that lists show it. */
export async function applyDueChanges(
  store: Pick<Store, "dueAccounts" | "times">,
  ledger: SweptLedger,
  isStopped: () => boolean,
): Promise<void> {
  await sweep<string>(
    (after) => store.dueAccounts(store.times().atMs, { after, limit: sweepMax }),
    // No request has this id, so nothing else happens.
    (account) => ledger.apply({ kind: "expire", account, requestId: "" }),
    isStopped,
  );
}

/**
 * Applies an operation to each row of all pages. Rows whose account is damaged or locked are left
 * behind, and the first such failure is thrown at the end.
 */
async function sweep<Row>(
  pageAfter: (last: Row | undefined) => Promise<Row[]>,
  apply: (row: Row) => Promise<unknown>,
  isStopped: () => boolean,
): Promise<void> {
  const failures: unknown[] = [];
  for (let after: Row | undefined; !isStopped(); ) {
    const rows = await pageAfter(after);
    const outcomes = await Promise.allSettled(rows.map(apply));
    for (const outcome of outcomes) if (outcome.status === "rejected") failures.push(outcome.reason);
    after = rows.at(-1);
    if (rows.length < sweepMax) break;
  }
  if (failures.length > 0) throw failures[0];
}
