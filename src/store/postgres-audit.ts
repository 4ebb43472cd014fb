/**
 * The audit of a PostgreSQL database, on a connection of its own: all of a report is about one moment, and commits do
 * not wait for it. The rules are those of every store (audit.ts).
 */
import type { EpochMs } from "../units.ts";
import { type AuditReport, auditQueries, type Broken, type FaultyRow } from "./audit.ts";
import { type Connection, forAudit, sqlState } from "./postgres-connection.ts";
import { clockMs } from "./postgres-ledger.ts";
import { type Cell, onlyCell } from "./postgres-rows.ts";

/** No sound amounts add up to more than 63 bits. */
const outOfRange = "22003";

/** `nowMs` null: the clock of the database. Rejects when the signal cuts it off. */
export async function auditDatabase(
  url: string,
  nowMs: EpochMs | null,
  signal: AbortSignal,
): Promise<AuditReport> {
  const report = forAudit(url, signal, async (connection) => {
    const ask = async (text: string, values: readonly Cell[] = []) =>
      (await connection.query({ text, values })).rows;
    await ask("begin isolation level repeatable read read only");
    const journalRows = Number(onlyCell(await ask("select count(*) from journal")));
    const checkedMs = Number(onlyCell(await ask(`select ${clockMs}`, [nowMs])));
    const broken: Broken[] = [];
    for (const { invariant, sql } of auditQueries()) {
      const rows = await faultyRows(connection, sql);
      if (rows.length > 0) broken.push({ invariant, rows });
    }
    return { checkedMs, journalRows, broken };
  });
  return await report.catch((error: unknown) => {
    throw signal.aborted ? new Error("the audit was ended before it was through", { cause: error }) : error;
  });
}

async function faultyRows(connection: Connection, sql: string): Promise<FaultyRow[]> {
  // A query that fails ends the transaction, and with it the moment, unless there is a point to go back to.
  await connection.query({ text: "savepoint query" });
  try {
    const { rows, columns } = await connection.query({ text: sql });
    return rows.map((cells) =>
      Object.fromEntries(cells.map((cell, index) => [columns[index] ?? "", plain(cell)])),
    );
  } catch (error) {
    if (sqlState(error) !== outOfRange || !(error instanceof Error)) throw error;
    await connection.query({ text: "rollback to savepoint query" });
    return [{ problem: error.message }];
  }
}

function plain(cell: Cell): string | number | null {
  return cell === null || typeof cell === "number" ? cell : String(cell);
}
