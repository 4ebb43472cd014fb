/** Health: readiness, models, nodes, jobs, clock, and the audit. */

import { get, send } from "../../shared/api.ts";
import { FormDialog, useAction } from "../../shared/form-dialog.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { Shown } from "../../shared/states.tsx";
import { ShownTable } from "../../shared/table.tsx";
import { exactTime } from "../../shared/times.ts";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge, Facts, Time } from "../../shared/values.tsx";
import type { Clock, Job, Model, Node, Readiness } from "../types.ts";
import { AuditCard } from "./audit.tsx";
import { RecentErrors } from "./errors.tsx";
import { JobsCard } from "./jobs.tsx";
import { ModelTable, PriceTable } from "./models.tsx";

export function HealthPage() {
  const readiness = useLoaded("readiness", (signal) => get<Readiness>("/readyz", {}, signal));
  const models = useLoaded("models", (signal) => get<Page<Model>>("/admin/models", { limit: 500 }, signal));
  const nodes = useLoaded("nodes", (signal) => get<Page<Node>>("/admin/nodes", { limit: 500 }, signal));
  const jobs = useLoaded("jobs", (signal) => get<Page<Job>>("/admin/jobs", { limit: 500 }, signal));
  return (
    <>
      <PageHead title="Health">
        <button
          type="button"
          onClick={() => {
            readiness.reload();
            models.reload();
            nodes.reload();
            jobs.reload();
          }}
        >
          Refresh
        </button>
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
          columns={[
            { title: "Node", cell: ({ id, self }) => (self ? `${id} (this one)` : id) },
            { title: "Version", cell: ({ version }) => version },
            { title: "Started", cell: ({ started_at }) => <Time at={started_at} /> },
            { title: "Seen", cell: ({ seen_at }) => <Time at={seen_at} /> },
            {
              title: "Differs in",
              cell: ({ differs }) =>
                differs.length === 0 ? (
                  <span class="quiet">nothing</span>
                ) : (
                  <Badge tone="warn" text={differs.join(", ")} />
                ),
            },
          ]}
        />
      </Card>
      <JobsCard of={jobs} />
      <ClockCard />
      <AuditCard />
      <RecentErrors />
    </>
  );
}

function NodeFacts({ now }: { now: Readiness }) {
  return (
    <>
      {now.warnings.map((warning) => (
        <p key={warning} class="notice warn">
          {warning}
        </p>
      ))}
      <Facts
        rows={[
          [
            "Takes requests",
            <Badge key="ready" text={now.ready ? "ready" : "not ready"} tone={now.ready ? "good" : "bad"} />,
          ],
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

function ClockCard() {
  const clock = useLoaded("clock", (signal) => get<Clock>("/admin/clock", {}, signal));
  const { open, show, close } = useAction<"accept">(clock.reload);
  return (
    <Card title="Clock">
      <Shown of={clock}>
        {({ trusted, clock_at, ledger_at }) => (
          <>
            <Facts
              rows={[
                [
                  "Trusted",
                  <Badge key="trusted" text={trusted ? "yes" : "no"} tone={trusted ? "good" : "bad"} />,
                ],
                ["Clock", exactTime(Date.parse(clock_at))],
                ["Time of the ledger", exactTime(Date.parse(ledger_at))],
              ]}
            />
            {!trusted && (
              <p class="notice warn">
                The ledger does not believe the clock and continues at its own time. Correct the clock of the
                machine first. If the clock is right, accept it.{" "}
                <button type="button" onClick={() => show("accept")}>
                  Accept the clock
                </button>
              </p>
            )}
          </>
        )}
      </Shown>
      {open === "accept" && (
        <FormDialog
          title="Accept the present clock"
          kind="clock"
          submit="Accept the clock"
          isDangerous
          intro={
            <p>
              Look at another clock first. If the clock is ahead of the ledger, windows end and begin up to
              it, and nothing takes that back. If it is behind, the ledger runs at half pace until it has
              caught up.
            </p>
          }
          fields={[
            {
              name: "time",
              label: "The true time",
              isRequired: true,
              hint: "From another clock, with its zone: 2027-01-31T18:04Z. It has to be within a minute of the clock.",
            },
            { name: "by", label: "Your name", isRequired: true, hint: "For the record." },
          ]}
          send={async ({ by, time }) => {
            await send("POST", "/admin/clock/accept", { by, time });
            return { done: "The clock is accepted." };
          }}
          close={close}
        />
      )}
    </Card>
  );
}
