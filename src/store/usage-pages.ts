/**
 * Reads all receipts that a query finds, one page at a time, so that memory use does not depend on
 * their number.
 */
import type { Receipt, Store, UsageQuery } from "./store.ts";

/**
 * Rows of one page, which is one read of the store. It takes milliseconds, or seconds if few
 * receipts of a large ledger match. On SQLite only other reads of receipts and journals wait for
 * it.
 */
const pageRows = 500;

export async function* usagePages(
  store: Pick<Store, "usage">,
  query: Omit<UsageQuery, "limit">,
): AsyncGenerator<Receipt[], void, undefined> {
  let after = query.after;
  for (;;) {
    const page = await store.usage({ ...query, after, limit: pageRows });
    if (page.length > 0) yield page;
    const last = page.at(-1);
    if (last === undefined || page.length < pageRows) return;
    after = { account: last.account, seq: last.seq };
  }
}
