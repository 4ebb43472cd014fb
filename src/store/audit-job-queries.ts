/** The statements of the audit job (audit-job.ts), for both stores. */
import { invariant } from "../errors.ts";
import { type AuditJobs, auditSilentMs } from "./audit-job.ts";
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";
import { auditJobTable } from "./tables.ts";

export function auditJobsOn({ find, write }: SqlConnections, { parameter: p }: SqlDialect): AuditJobs {
  const select = `select ${auditJobTable.list()} from audit_job`;
  const begin = `update audit_job set run = ${p(1)}, started_ms = ${p(2)}, alive_ms = ${p(2)}
    where run is null or alive_ms not between ${p(3)} and ${p(4)} returning id`;
  const refresh = `update audit_job set alive_ms = ${p(2)} where run = ${p(1)}`;
  const finish = `update audit_job set run = null, last_started_ms = ${p(2)}, last_ended_ms = ${p(3)},
    problems = ${p(4)}, report = ${p(5)}, failed_ms = null, failure = null where run = ${p(1)}`;
  const fail = `update audit_job set run = null, failed_ms = ${p(2)}, failure = ${p(3)} where run = ${p(1)}`;
  return {
    async read() {
      const [cells] = await find("service", { text: select, values: [] });
      invariant(cells !== undefined, "the table of the audit has one row");
      return auditJobTable.rowOf(cells);
    },
    async begin(run, nowMs) {
      const values = [run, nowMs, nowMs - auditSilentMs, nowMs + auditSilentMs];
      return (await write({ text: begin, values })).length === 1;
    },
    async refresh(run, nowMs) {
      await write({ text: refresh, values: [run, nowMs] });
    },
    async finish(run, { startedMs, endedMs, ...report }) {
      const values = [run, startedMs, endedMs, report.broken.length, JSON.stringify(report)];
      await write({ text: finish, values });
    },
    async fail(run, nowMs, reason) {
      await write({ text: fail, values: [run, nowMs, reason] });
    },
  };
}
