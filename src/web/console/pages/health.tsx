/** Health: readiness, models, nodes, jobs, the audit, and the last errors in the log of this node. */

import { Button } from "../../shared/button.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { counted } from "../../shared/numbers.ts";
import { Shown, Warnings } from "../../shared/states.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { type Loaded, useGet, useList } from "../../shared/use-loaded.ts";
import { Badge, Facts, Time } from "../../shared/values.tsx";
import type { Job, LastAudit, Model, Node, Readiness, RecentError } from "../types.ts";
import { ModelTable, PriceTable } from "./models.tsx";

export function HealthPage() {
  const readiness = useGet<Readiness>("/readyz");
  const models = useList<Model>("/admin/models");
  const nodes = useList<Node>("/admin/nodes");
  const jobs = useList<Job>("/admin/jobs");
  const audit = useGet<LastAudit>("/admin/audit");
  return (
    <>
      <PageHead title="Health">
        <Button onClick={() => [readiness, models, nodes, jobs, audit].map(({ reload }) => reload())}>
          Refresh
        </Button>
      </PageHead>
      <Card title="This node">
        <Shown of={readiness}>{(now) => <NodeFacts now={now} />}</Shown>
      </Card>
      <Card title="Models">
        <Shown of={models}>{({ data }) => <ModelTable models={data} />}</Shown>
      </Card>
      <Card title="Context and prices">
        <Shown of={models}>{({ data }) => <PriceTable models={data} />}</Shown>
      </Card>
      <Card title="Nodes">
        <ShownTable
          of={nodes}
          caption="Nodes on this database"
          columns={columnsOf("node", "id version started_at seen_at differs", {
            id: ({ id, self }: Node) => (self ? `${id} (this one)` : id),
            differs: ({ differs }: Node) =>
              differs.length === 0 ? "nothing" : <Badge tone="warn" text={differs.join(", ")} />,
          })}
        />
      </Card>
      <JobsCard of={jobs} />
      <AuditCard of={audit} />
      <RecentErrors />
    </>
  );
}

function NodeFacts({ now }: { now: Readiness }) {
  return (
    <>
      <Warnings of={now.warnings} />
      <Facts
        rows={[
          ["Takes requests", <Badge key="ready" text={now.ready ? "ready" : "not ready"} />],
          ["Database", <Badge key="store" text={now.store} tone={now.store === "ok" ? "good" : "bad"} />],
          ["Clock", <Badge key="clock" text={now.clock} tone={now.clock === "ok" ? "good" : "bad"} />],
          ["Stops", now.draining ? "yes, it lets running requests finish" : "no"],
          [
            "Last reload",
            now.last_reload === null ? (
              "none since the start"
            ) : (
              <>
                <Time at={now.last_reload.at} /> <Badge text={now.last_reload.successful ? "ok" : "failed"} />
              </>
            ),
          ],
        ]}
      />
    </>
  );
}

/** The regular work of this node: how often each job runs, and whether it succeeds. */
function JobsCard({ of }: { of: Loaded<Page<Job>> }) {
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

function AuditCard({ of }: { of: Loaded<LastAudit> }) {
  return (
    <Card title="Audit">
      <Shown of={of}>
        {({ last }) => (last === null ? "No audit is recorded." : <AuditResult last={last} />)}
      </Shown>
      <p class="quiet">
        The command <code>audit --record</code> of Inkwell checks all rows and records its result, also while
        the service runs. Let a timer run it each night.
      </p>
    </Card>
  );
}

function AuditResult({ last }: { last: NonNullable<LastAudit["last"]> }) {
  return (
    <>
      <p>
        <Badge text={last.sound ? "sound" : "not sound"} tone={last.sound ? "good" : "bad"} />{" "}
        {counted(last.journal_entries, "journal entry", "journal entries")} checked{" "}
        <Time at={last.checked_at} />.
      </p>
      {!last.sound && (
        <p class="notice bad">
          {counted(last.problems, "rule is", "rules are")} broken. The first one: {last.first_problem}. The
          output of the audit has the rows at fault.
        </p>
      )}
    </>
  );
}

function RecentErrors() {
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
