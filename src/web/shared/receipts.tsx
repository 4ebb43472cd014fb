/** Receipts of finished requests in tables, and the buckets that paid for one. */
import type { Receipt } from "./types.ts";
import { Amount } from "./values.tsx";

export function costCell(row: Receipt, decimals = 0) {
  return (
    <>
      <Amount micro={row.cost_micro} decimals={decimals} />
      {row.memo_micro > 0 && (
        <div class="quiet">
          <Amount micro={row.memo_micro} decimals={decimals} /> given back
        </div>
      )}
    </>
  );
}

/** Returns what each bucket paid, and what none could pay, in micro-credits. */
export function paymentsOf(receipt: Receipt) {
  return [
    ["base", receipt.base_micro],
    ["overage", receipt.overage_micro],
    ["additional", receipt.additional_micro],
    ["not paid", receipt.shortfall_micro],
  ] as const;
}
