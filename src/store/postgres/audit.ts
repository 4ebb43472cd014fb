/**
 * The audit of a PostgreSQL database, on a connection of its own that cannot write; commits do not wait for it. The rules
 * are those of every store (audit.ts).
 *
 * Each rule is checked at a moment of its own. While one snapshot lasts, PostgreSQL keeps every old version of the rows
 * that are written, and each commit on a hot account walks over all of its account's: with one snapshot for all rules a
 * hold and settlement took 7 ms instead of 3 at the end of an audit of 9 s, and more the longer; with one for each
 * they become faster again with every rule.
 */
import type { EpochMs } from "../../units.ts";
import { type AuditReport, auditQueries, type Broken, type FaultyRow } from "../audit.ts";
import { type Connection, forAudit } from "./connection.ts";
import { sqlState } from "./errors.ts";
import { type Cell, onlyCell } from "./rows.ts";
import { clockMs } from "./snapshot.ts";

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
    await ask("set session characteristics as transaction read only");
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
  try {
    const { rows, columns } = await connection.query({ text: sql });
    return rows.map((cells) =>
      Object.fromEntries(cells.map((cell, index) => [columns[index] ?? "", plain(cell)])),
    );
  } catch (error) {
    if (sqlState(error) !== outOfRange || !(error instanceof Error)) throw error;
    return [{ problem: error.message }];
  }
}

function plain(cell: Cell): string | number | null {
  return cell === null || typeof cell === "number" ? cell : String(cell);
}
