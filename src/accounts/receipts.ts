/**
 * Lists receipts, and ends the lists of keys and models with their last receipt.
 *
 * A list reads the receipts of an account until it has enough. The newest receipts of a key with
 * few of them would otherwise read all receipts of the account. Sums of usage say how many a list
 * can find, so it ends there. A receipt that is written meanwhile is not missed.
 */
import type { ChargeRow } from "../ledger/rows.ts";
import type { Store, UsageQuery } from "../store/store.ts";
import { dayMs } from "../store/usage-sums.ts";

type ReceiptStore = Pick<Store, "usage" | "usageSums">;

export async function receiptsOf(store: ReceiptStore, query: UsageQuery): Promise<ChargeRow[]> {
  const { account, id, key, model, newestFirst = false, limit } = query;
  const isOfPart = key !== undefined || (account !== undefined && model !== undefined);
  if (!newestFirst || !isOfPart || id !== undefined) return await store.usage(query);
  let count = await countOf(store, query);
  // The count grows at most to the limit.
  while (count < limit) {
    const rows = count === 0 ? [] : await store.usage({ ...query, limit: count });
    const now = await countOf(store, query);
    // Fewer rows: the list has come to its end.
    if (rows.length < count || now === count) return rows;
    count = now;
  }
  return await store.usage(query);
}

/** Returns how many receipts the list can have at most, whatever page it shows. */
async function countOf(store: ReceiptStore, { account, key, model, fromMs }: UsageQuery): Promise<number> {
  // A receipt counts on its day, or on a later one if its day was final.
  const from = fromMs === undefined ? undefined : Math.floor(fromMs / dayMs);
  const { total } = await store.usageSums({ by: "key", order: "name", account, key, model, from, limit: 1 });
  return total.requests + total.late;
}
