/** Health: readiness, models, nodes, clock, and the audit. */
import { useState } from "preact/hooks";
import { get, send } from "../api.ts";
import { counted, wholeNumber } from "../numbers.ts";
import { ActionDialog, useAction } from "../parts/action.tsx";
import { Card, PageHead } from "../parts/layout.tsx";
import { Failure, Shown } from "../parts/states.tsx";
import { Table } from "../parts/table.tsx";
import { Badge, Facts, Time } from "../parts/values.tsx";
import { exactTime } from "../times.ts";
import type { AuditReport, Clock, Model, Node, Page, Readiness } from "../types.ts";
import { useLoaded } from "../use-loaded.ts";

export function HealthPage() {
  const readiness = useLoaded("readiness", (signal) => get<Readiness>("/readyz", {}, signal));
  const nodes = useLoaded("nodes", (signal) => get<Page<Node>>("/admin/nodes", { limit: 500 }, signal));
  return (
    <>
      <PageHead title="Health">
        <button
          type="button"
          onClick={() => {
            readiness.reload();
            nodes.reload();
          }}
        >
          Refresh
        </button>
      </PageHead>
      <Card title="This node">
        <Shown of={readiness}>{(now) => <NodeFacts now={now} />}</Shown>
      </Card>
      <Card title="Models">
        <Models />
      </Card>
      <Card title="Nodes">
        <Shown of={nodes}>
          {({ data }) => (
            <Table
              caption="Nodes on this database"
              rows={data}
              keyOf={({ id }) => id}
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
          )}
        </Shown>
      </Card>
      <ClockCard />
      <AuditCard />
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

export function Models() {
  const models = useLoaded("models", (signal) => get<Page<Model>>("/admin/models", { limit: 500 }, signal));
  return (
    <Shown of={models}>
      {({ data }) => (
        <Table
          caption="Models with state, load and price"
          rows={data}
          keyOf={({ id }) => id}
          columns={[
            { title: "Model", cell: ({ id }) => id },
            { title: "State", cell: ({ state }) => <Badge text={state} /> },
            { title: "Running", isNumber: true, cell: ({ load }) => wholeNumber(load?.running ?? null) },
            { title: "Waiting", isNumber: true, cell: ({ load }) => wholeNumber(load?.waiting ?? null) },
            { title: "Paused", isNumber: true, cell: ({ load }) => wholeNumber(load?.paused ?? null) },
            { title: "Context", isNumber: true, cell: (model) => wholeNumber(model.context_window) },
            { title: "Prompt price", isNumber: true, cell: ({ pricing }) => price(pricing.prompt) },
            { title: "Cached price", isNumber: true, cell: ({ pricing }) => price(pricing.cached_prompt) },
            { title: "Answer price", isNumber: true, cell: ({ pricing }) => price(pricing.completion) },
          ]}
        />
      )}
    </Shown>
  );
}

function price(credits: number) {
  return <span title="credits per million tokens">{wholeNumber(credits)} / M</span>;
}

function ClockCard() {
  const { open, show, hide } = useAction<"accept">();
  const clock = useLoaded("clock", (signal) => get<Clock>("/admin/clock", {}, signal));
  return (
    <Card title="Clock">
      <Shown of={clock}>
        {({ trusted, clock_at, trusted_at }) => (
          <>
            <Facts
              rows={[
                [
                  "Trusted",
                  <Badge key="trusted" text={trusted ? "yes" : "no"} tone={trusted ? "good" : "bad"} />,
                ],
                ["Clock", exactTime(Date.parse(clock_at))],
                ["Time of the ledger", exactTime(Date.parse(trusted_at))],
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
        <ActionDialog
          title="Accept the present clock"
          kind="clock"
          submit="Accept the clock"
          isDangerous
          intro={
            <p>
              The present reading becomes the time of the ledger. Windows that began after it are taken back.
            </p>
          }
          fields={[{ name: "by", label: "Your name", isRequired: true, hint: "For the record." }]}
          send={async ({ by }) => {
            await send("POST", "/admin/clock/accept", { by });
            return { done: "The clock is accepted." };
          }}
          close={(isDone) => {
            hide();
            if (isDone) clock.reload();
          }}
        />
      )}
    </Card>
  );
}

function AuditCard() {
  const [report, setReport] = useState<AuditReport | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [startedMs, setStartedMs] = useState<number | null>(null);
  const run = async () => {
    setStartedMs(Date.now());
    setError(null);
    try {
      setReport(await get<AuditReport>("/admin/audit"));
    } catch (failure) {
      setError(failure instanceof Error ? failure : new Error(String(failure)));
    } finally {
      setStartedMs(null);
    }
  };
  return (
    <Card
      title="Audit"
      actions={
        <button type="button" disabled={startedMs !== null} onClick={run}>
          {startedMs === null ? "Run the audit" : "The audit runs …"}
        </button>
      }
    >
      {startedMs !== null && (
        <>
          <progress aria-label="The audit runs" />
          <p class="quiet">
            It reads all rows, which takes minutes on a large ledger. Requests are answered meanwhile.
          </p>
        </>
      )}
      {error && <Failure error={error} retry={run} />}
      {report === null && startedMs === null && !error && (
        <p class="quiet">The audit recomputes all balances from the journal, and only reads.</p>
      )}
      {report && <AuditResult report={report} />}
    </Card>
  );
}

function AuditResult({ report }: { report: AuditReport }) {
  return (
    <>
      <p>
        <Badge text={report.sound ? "sound" : "not sound"} tone={report.sound ? "good" : "bad"} />{" "}
        {counted(report.journal_entries, "journal entry", "journal entries")} checked{" "}
        <Time at={report.checked_at} />.
      </p>
      {report.broken.map(({ invariant, rows }) => (
        <div key={invariant} class="notice bad">
          <p>{invariant}</p>
          <ul>
            {rows.map((row) => (
              <li key={JSON.stringify(row)}>
                <code>{JSON.stringify(row)}</code>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </>
  );
}
