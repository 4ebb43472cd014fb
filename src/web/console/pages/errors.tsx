/** The last warnings and errors in the log of this node. */
import { Card } from "../../shared/layout.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import { useList } from "../../shared/use-loaded.ts";
import type { RecentError } from "../types.ts";

export function RecentErrors() {
  const errors = useList<RecentError>("/admin/errors", { limit: 100 });
  return (
    <Card title="Last errors and warnings">
      <ShownTable
        of={errors}
        empty={<p class="quiet">This node has logged none since its start.</p>}
        caption="Last errors and warnings of this node, newest first"
        keyOf={(row) => `${row.first_at} ${row.message} ${row.code}`}
        columns={columnsOf("recentError", "last_at level message count code model request_id")}
      />
    </Card>
  );
}
