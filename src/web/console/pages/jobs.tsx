/** The regular work of this node: how often each job runs, and whether it succeeds. */
import { Card } from "../../shared/layout.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import type { Loaded } from "../../shared/use-loaded.ts";
import { Badge, Time } from "../../shared/values.tsx";
import type { Job } from "../types.ts";

export function JobsCard({ of }: { of: Loaded<Page<Job>> }) {
  return (
    <Card title="Jobs">
      <ShownTable
        of={of}
        caption="Regular work of this node"
        keyOf={({ name }) => name}
        columns={columnsOf("job", "name every_ms state last_success_at last_error", {
          name: ({ name }: Job) => name.replaceAll("_", " "),
          every_ms: ({ every_ms }: Job) => `${every_ms / 1000} s`,
          state: ({ state, since }: Job) => (
            <>
              <Badge text={state} tone={state === "ok" ? "good" : "bad"} /> {state !== "ok" && "since "}
              {state !== "ok" && <Time at={since} />}
            </>
          ),
          last_error: ({ last_error: last }: Job) =>
            last && (
              <>
                {last.message} (<Time at={last.at} />)
              </>
            ),
        })}
      />
    </Card>
  );
}
