/**
 * Sums charges on PostgreSQL (../usage-steps.ts). Any number of nodes may do it at once.
 *
 * Guarantees that each charge is summed once: the row of `usage_summed` is locked by the node that
 * sums. Numbers are summed only when no charge with a smaller one can follow. To find such a
 * number, the table of charges is locked for a moment, which waits for the commits under way.
 */
import type { EpochMs } from "../../units.ts";
import { firstKeptHour } from "../usage-hours.ts";
import { isSummingDue, readUsageState, summingStep, usageStateOf } from "../usage-steps.ts";
import { type Connection, type ConnectionPool, inTransaction } from "./connection-pool.ts";
import { isLockTimeout } from "./errors.ts";
import { databaseLimits } from "./limits.ts";
import { onlyCell } from "./rows.ts";

/** Charges of one step: half a second. Commits do not wait for it. */
const chargesMax = 50_000;

/** Commits that begin meanwhile wait as long, so it is less than they wait for a lock. */
const lockMs = databaseLimits.commitLockMs / 2;

const lastNumber = "select case when is_called then last_value else 0 end from charge_rowid_seq";

interface Settled {
  /** All charges up to this one are committed, or never will be. */
  number: number;
  /** A time before that was so. */
  atMs: EpochMs;
}

export class PostgresUsageSums {
  readonly #pool: ConnectionPool;
  readonly #now: () => Promise<EpochMs>;
  #settled: Settled | null = null;

  constructor(pool: ConnectionPool, now: () => Promise<EpochMs>) {
    this.#pool = pool;
    this.#now = now;
  }

  /** Sums the next charges, and makes days final. Returns whether there is more to do. */
  async step(timezone: string): Promise<boolean> {
    if (this.#settled === null) {
      const state = usageStateOf((await this.#pool.query({ text: readUsageState })).rows[0]);
      const atMs = await this.#now();
      const last = Number(onlyCell((await this.#pool.query({ text: lastNumber })).rows));
      if (!isSummingDue(state, last, atMs)) return false;
      const number = await this.#settle();
      if (number === null) return false;
      this.#settled = { number, atMs };
    }
    const settled = this.#settled;
    // After an error, the server that answers next may have lost charges, and used their numbers.
    this.#settled = null;
    const isDone = await inTransaction(this.#pool, (connection) => sumSettled(connection, settled, timezone));
    if (!isDone) this.#settled = settled;
    return !isDone;
  }

  /** Returns null if the table cannot be locked now: the next step tries again. */
  async #settle(): Promise<number | null> {
    try {
      return await inTransaction(this.#pool, async (connection) => {
        await connection.query({ text: `set local lock_timeout = ${lockMs}` });
        await connection.query({ text: "lock table charge in share row exclusive mode" });
        return Number(onlyCell((await connection.query({ text: lastNumber })).rows));
      });
    } catch (error) {
      if (isLockTimeout(error)) return null;
      throw error;
    }
  }
}

/** Returns whether all settled charges are summed. */
async function sumSettled(
  connection: Connection,
  { number: last, atMs: nowMs }: Settled,
  timezone: string,
): Promise<boolean> {
  await connection.query({ text: "select from usage_summed for update" });
  const state = usageStateOf((await connection.query({ text: readUsageState })).rows[0]);
  const { statements, isLast } = summingStep(state, { last, nowMs, timezone, chargesMax }, (n) => `$${n}`);
  for (const statement of statements) await connection.query(statement);
  const oldHours = "delete from usage_sum where unit = 'hour' and period < $1";
  if (isLast) await connection.query({ text: oldHours, values: [firstKeptHour(nowMs)] });
  return isLast;
}
