/**
 * Plans in a PostgreSQL database.
 *
 * Guarantees that sections are applied one after another, by all nodes, and each completely or not
 * at all. Commits do not wait for it: they read the plans and lock no row of them.
 */
import type { Plans } from "../../ledger/plan.ts";
import type { PlanChanges } from "../../ledger/plan-section.ts";
import {
  countAccounts,
  type PlansInUse,
  type PlansOptions,
  plansInUseOf,
  plansToApply,
  readFiles,
  readVersions,
} from "../plans.ts";
import { changeLogTable, planFileTable, planVersionTable } from "../tables.ts";
import { ledgerMs, reading, type TimeParameter } from "./clock.ts";
import { type Connection, type Connections, forAudit, inTransaction } from "./connection-pool.ts";
import { onlyCell } from "./rows.ts";
import { insertInto } from "./writing.ts";

const insertVersions = insertInto(planVersionTable);
const insertFile = insertInto(planFileTable);
const insertChange = insertInto(changeLogTable);

const readClock = `with reading as materialized (${reading}) select ${ledgerMs} from reading`;

interface Applying extends PlansOptions {
  time: TimeParameter;
}

/** Reads the plans of a ledger of this version and counts their accounts, in one state. */
export async function plansInUseAt(url: string): Promise<PlansInUse> {
  return await forAudit(url, async (connection) => {
    const find = async (text: string) => (await connection.query({ text })).rows;
    await find("begin isolation level repeatable read read only");
    const [versions, files] = [await find(readVersions), await find(readFiles)];
    return plansInUseOf(versions, files, await find(countAccounts));
  });
}

/** Applies a section in a transaction of its own. */
export async function applyPlans(
  connections: Connections,
  section: Plans,
  options: Applying,
): Promise<PlanChanges> {
  return await inTransaction(connections, (connection) => writePlans(connection, section, options));
}

/**
 * Writes the versions of a section, and makes it current, in the transaction of the connection.
 */
export async function writePlans(
  connection: Connection,
  section: Plans,
  { time, ...options }: Applying,
): Promise<PlanChanges> {
  const find = async (text: string) => (await connection.query({ text })).rows;
  // Other writers wait, readers do not.
  await connection.query({ text: "lock table plan_file in exclusive mode" });
  const rows = { versions: await find(readVersions), files: await find(readFiles) };
  const clock = await connection.query({ text: readClock, values: [time] });
  const { changes, versions, applied } = plansToApply(rows, section, {
    ...options,
    nowMs: Number(onlyCell(clock.rows)),
  });
  const writings = [insertVersions(versions)];
  if (applied !== null) writings.push(insertFile([applied.file]), insertChange([applied.change]));
  for (const writing of writings) if (writing !== null) await connection.query(writing);
  return changes;
}
