/** Receipts of finished requests in tables, and the buckets that paid for one. */
import { type Column, Table } from "./table.tsx";
import type { Receipt } from "./types.ts";
import { Amount, Time } from "./values.tsx";

export const costColumn: Column<Receipt> = {
  title: "Cost in credits",
  isNumber: true,
  cell: (row) => (
    <>
      <Amount micro={row.cost_micro} />
      {row.memo_micro > 0 && (
        <div class="quiet">
          <Amount micro={row.memo_micro} /> given back
        </div>
      )}
    </>
  ),
};

/** A table of receipts. Its first column is the time at which the request finished. */
export function ReceiptTable(props: {
  caption: string;
  rows: readonly Receipt[];
  columns: readonly Column<Receipt>[];
}) {
  const finished = { title: "Finished", cell: (row: Receipt) => <Time at={row.finished_at} /> };
  return (
    <Table
      {...props}
      keyOf={(row) => `${row.request_id} ${row.journal_seq}`}
      columns={[finished, ...props.columns]}
    />
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
