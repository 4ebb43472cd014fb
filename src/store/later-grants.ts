/** The rows of additional grants that are not in the row of their account. */
import type { LaterGrantRow } from "../ledger/rows.ts";
import type { Changes, Snapshot } from "../ledger/snapshot.ts";

/** Returns what a commit writes: few of them change at once. */
export function laterChanges(
  { later: read }: Pick<Snapshot, "later">,
  { later }: Pick<Changes, "later">,
): { added: LaterGrantRow[]; changed: LaterGrantRow[]; removed: { account: string; seq: number }[] } {
  const added: LaterGrantRow[] = [];
  const changed: LaterGrantRow[] = [];
  const removed: { account: string; seq: number }[] = [];
  for (const [account, rows] of later) {
    const before = new Map(read.get(account)?.map((grant) => [grant.seq, grant]));
    for (const row of rows) {
      const known = before.get(row.seq);
      before.delete(row.seq);
      if (known === undefined) added.push(row);
      else if (
        known.amountMicro !== row.amountMicro ||
        known.spentMicro !== row.spentMicro ||
        known.heldMicro !== row.heldMicro
      )
        changed.push(row);
    }
    for (const seq of before.keys()) removed.push({ account, seq });
  }
  return { added, changed, removed };
}
