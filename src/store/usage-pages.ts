/** Walks all receipts that a query finds, a page at a time, so that however many there are none of it piles up. */
import type { UsageRow } from "../ledger/rows.ts";
import type { Store, UsageQuery } from "./store.ts";

/**
 * Each page is one read of the store: a few milliseconds, or seconds in a large ledger where few receipts match. On SQLite
 * other questions for receipts wait for it, and nothing else.
 */
const pageRows = 500;

export async function* usagePages(
  store: Pick<Store, "usage">,
  query: Omit<UsageQuery, "limit">,
): AsyncGenerator<UsageRow[], void, undefined> {
  let after = query.after;
  for (;;) {
    const page = await store.usage({ ...query, after, limit: pageRows });
    if (page.length > 0) yield page;
    const last = page.at(-1);
    if (last === undefined || page.length < pageRows) return;
    after = { account: last.account, seq: last.seq };
  }
}
