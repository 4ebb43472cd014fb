/** The last warnings and errors in the log of this node. */
import { get } from "../../shared/api.ts";
import { Card } from "../../shared/layout.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import type { RecentError } from "../types.ts";

export function RecentErrors() {
  const errors = useLoaded("errors", (signal) =>
    get<Page<RecentError>>("/admin/errors", { limit: 100 }, signal),
  );
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
