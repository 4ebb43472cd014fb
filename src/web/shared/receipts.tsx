/** The cost of a finished request in tables. */
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
