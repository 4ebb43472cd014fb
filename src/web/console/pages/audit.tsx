/** The audit: start it, see that it runs, and its last result, which is kept in the database. */
import { useEffect, useState } from "preact/hooks";
import { get, send } from "../../shared/api.ts";
import { Card } from "../../shared/layout.tsx";
import { counted } from "../../shared/numbers.ts";
import { Failure } from "../../shared/states.tsx";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge, Time } from "../../shared/values.tsx";
import type { AuditJob } from "../types.ts";

const path = "/admin/audit";
/** Between looks at a running audit. */
const lookMs = 2000;

export function AuditCard() {
  const [error, setError] = useState<Error | null>(null);
  const job = useLoaded("audit", (signal) => get<AuditJob>(path, {}, signal));
  const running = job.value?.running ?? null;
  useEffect(() => {
    if (running === null) return;
    const timer = setInterval(() => document.visibilityState === "visible" && job.reload(), lookMs);
    return () => clearInterval(timer);
  }, [running?.started_at, job.reload]);
  const start = () => {
    setError(null);
    send("POST", path).then(job.reload, setError);
  };
  return (
    <Card
      title="Audit"
      actions={
        <button type="button" disabled={running !== null} onClick={start}>
          {running === null ? "Run the audit" : "The audit runs …"}
        </button>
      }
    >
      {error && <Failure error={error} retry={start} />}
      {job.error ? (
        <Failure error={job.error} retry={job.reload} />
      ) : (
        job.value && <AuditState job={job.value} />
      )}
    </Card>
  );
}

function AuditState({ job: { running, last, failed } }: { job: AuditJob }) {
  return (
    <>
      {running !== null && (
        <p>
          <progress aria-label="The audit runs" /> started <Time at={running.started_at} />. It reads all
          rows, which takes minutes on a large ledger. Requests are answered meanwhile.
        </p>
      )}
      {failed !== null && (
        <p class="notice bad">
          The audit of <Time at={failed.at} /> could not read all rows: {failed.reason}
        </p>
      )}
      {last === null && running === null && (
        <p class="quiet">
          No audit has run yet. It recomputes all balances from the journal, and only reads.
        </p>
      )}
      {last !== null && <AuditResult last={last} />}
    </>
  );
}

function AuditResult({ last }: { last: NonNullable<AuditJob["last"]> }) {
  return (
    <>
      <p>
        <Badge text={last.sound ? "sound" : "not sound"} tone={last.sound ? "good" : "bad"} />{" "}
        {counted(last.journal_entries, "journal entry", "journal entries")} checked, ended{" "}
        <Time at={last.ended_at} />.
      </p>
      {last.broken.map(({ invariant, rows }) => (
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
