/** The regular work of this node: how often each job runs, and whether it succeeds. */
import { Card } from "../../shared/layout.tsx";
import { ShownTable } from "../../shared/table.tsx";
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
        columns={[
          { title: "Job", cell: ({ name }) => name.replaceAll("_", " ") },
          { title: "Every", isNumber: true, cell: ({ every_ms }) => `${every_ms / 1000} s` },
          {
            title: "State",
            cell: ({ state, since }) => (
              <>
                <Badge text={state} tone={state === "ok" ? "good" : "bad"} />
                {state !== "ok" && (
                  <>
                    {" "}
                    since <Time at={since} />
                  </>
                )}
              </>
            ),
          },
          { title: "Last success", cell: ({ last_success_at }) => <Time at={last_success_at} /> },
          {
            title: "Last error",
            cell: ({ last_error }) =>
              last_error === null ? (
                <span class="quiet">none</span>
              ) : (
                <>
                  {last_error.message} (<Time at={last_error.at} />)
                </>
              ),
          },
        ]}
      />
    </Card>
  );
}
