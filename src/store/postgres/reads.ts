/**
 * Reads of PostgreSQL outside the ledger's commits: what queries.ts needs of it, and snapshots for
 * balances.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { invariant } from "../../errors.ts";
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { AdditionalGrant } from "../../ledger/rows.ts";
import { overdueMax } from "../../ledger/snapshot.ts";
import type { EpochMs } from "../../units.ts";
import { accountRowIn } from "../account-rows.ts";
import type { Purpose, SqlConnections } from "../queries.ts";
import { answerOf, type SqlDialect } from "../sql.ts";
import { ListTooSlowError } from "../store.ts";
import { accountTable, holdTable, laterGrantTable } from "../tables.ts";
import { type CommitClock, readClockAndMark } from "./clock.ts";
import { type ConnectionPool, inTransaction } from "./connection-pool.ts";
import { isDeadlock, isStatementTimeout } from "./errors.ts";
import { databaseLimits } from "./limits.ts";

type ReadPools = Readonly<Record<Purpose | "writes", ConnectionPool>>;

/** The words of SQL in which PostgreSQL differs. */
export const postgresWords = {
  parameter: (n: number) => `$${n}`,
  items: (array: string) => `json_array_elements(${array}) e(value)`,
  forUpdate: " for update",
} as const;

export function postgresDialect(ledgerMs: () => EpochMs): SqlDialect {
  return { ...postgresWords, ledgerMs };
}

/** Two writes of several rows can wait for each other. */
const deadlockAttemptsMax = 3;

/** Without a rest, the same row is locked again before the other transaction has woken up. */
const deadlockRestMs = 100;

/** `listMs`: the time limit of the pool for lists, for the error. */
export function connectionsOn(pools: ReadPools, listMs: number = databaseLimits.listMs): SqlConnections {
  return {
    find: (purpose, statement) => pools[purpose].find(statement),
    async findPage(purpose, statement) {
      try {
        return await pools[purpose].find(statement);
      } catch (error) {
        if (isStatementTimeout(error)) throw new ListTooSlowError(listMs, error);
        throw error;
      }
    },
    async write(first, ...others) {
      const all = [first, ...others];
      const once = async () => {
        if (others.length === 0) return (await pools.writes.query(first)).rows;
        return await inTransaction(
          pools.writes,
          async (connection) => answerOf(all, await connection.exchange(all)) ?? [],
        );
      };
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await once();
        } catch (error) {
          // The other transaction goes on, and nothing was done here.
          if (!isDeadlock(error) || attempt === deadlockAttemptsMax) throw error;
          await sleep(attempt * deadlockRestMs * (1 + Math.random()));
        }
      }
    },
  };
}

/** The later grants of account `a`, if it has any, as a JSON array of rows. */
const laterOf = `select json_agg(json_build_array(${laterGrantTable.list("g")})) from later_grant g
  where g.account = a.id and a.later_count > 0`;

function laterGrantsOf(cell: unknown): AdditionalGrant[] {
  if (cell === null) return [];
  const rows: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
  invariant(Array.isArray(rows), "later grants are read as a list");
  return rows.map((cells: unknown[]) => laterGrantTable.rowOf(cells));
}

/**
 * One statement, so that account and holds are of one state. The clock is read after that state is
 * fixed.
 */
const readSnapshot = `
  with ${readClockAndMark}
  select clock.clock_ms, clock.mark, ${accountTable.list("a")},
    (${laterOf}), ${holdTable.list("h")}
  from clock join account a on a.id = $2
  left join lateral (
    select * from hold where hold.account = a.id and hold.expires_ms <= clock.now_ms
    order by hold.expires_ms, hold.id limit ${overdueMax}
  ) h on true
  order by h.expires_ms, h.id`;

/** An account without the plans, of which it has the mark. */
type FoundSnapshot = Omit<AccountSnapshot, "plans"> & { mark: number };

export async function findSnapshot(
  pool: ConnectionPool,
  account: string,
  clock: CommitClock,
): Promise<FoundSnapshot | null> {
  const { parameter, asked } = clock.ask();
  const rows = await pool.find({
    name: "snapshot",
    text: readSnapshot,
    values: [parameter, account],
  });
  const [first] = rows;
  if (first === undefined) return null;
  const [clockMs, mark] = first;
  invariant(typeof clockMs === "number" && typeof mark === "number", "clock and mark are read");
  const accountFrom = 2;
  const laterAt = accountFrom + accountTable.columns.length;
  const holdsFrom = laterAt + 1;
  const overdue = rows.filter((cells) => cells[holdsFrom] !== null);
  const { row, problem } = accountRowIn(first.slice(accountFrom, laterAt));
  return {
    account: row,
    problem,
    overdue: overdue.map((cells) => holdTable.rowOf(cells, holdsFrom)),
    later: laterGrantsOf(first[laterAt]),
    times: clock.answered(asked, clockMs),
    mark,
  };
}
