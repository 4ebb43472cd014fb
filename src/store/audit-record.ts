/**
 * The statements about the recorded audit, for both stores. A database keeps the last one, which
 * all services on it show.
 *
 * Guarantees that an unsound audit is an event once: both are written in one transaction.
 */
import type { EventSettings } from "../ledger/events.ts";
import type { AuditRecord } from "./audit-report.ts";
import { eventInsertion } from "./event-queries.ts";
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";
import type { Store } from "./store.ts";
import { auditRecordTable } from "./tables.ts";

/** `events` returns null if no event is written. */
export function auditRecordOn(
  { find, write }: SqlConnections,
  dialect: SqlDialect,
  events: () => EventSettings | null,
): Pick<Store, "lastAudit" | "recordAudit"> {
  const { columns } = auditRecordTable;
  const select = `select ${auditRecordTable.list()} from audit_record`;
  const replace = `insert into audit_record (id, ${auditRecordTable.list()})
    values (1, ${columns.map((_, n) => dialect.parameter(n + 1)).join(", ")})
    on conflict (id) do update set ${columns.map(({ name }) => `${name} = excluded.${name}`).join(", ")}`;
  return {
    async lastAudit() {
      const [cells] = await find("service", { text: select, values: [] });
      return cells === undefined ? null : auditRecordTable.rowOf(cells);
    },
    async recordAudit({ checkedMs, journalRows, broken }) {
      const problems = broken.length;
      const row: AuditRecord = {
        checkedMs,
        journalRows,
        problems,
        firstProblem: broken[0]?.invariant ?? null,
      };
      const record = { text: replace, values: auditRecordTable.valuesOf(row) };
      if (problems === 0 || events() === null) return void (await write(record));
      const event = eventInsertion(dialect, {
        type: "audit.failed",
        atMs: dialect.ledgerMs(),
        data: { problems },
        account: null,
        cause: `audit.failed:${checkedMs}`,
      });
      await write(record, event);
    },
  };
}
