/**
 * The calls of the thread that writes (worker.ts). It waits for the disk, so that the main thread
 * never does.
 */
import { answerOf } from "../sql.ts";
import { machineOf, SqliteClock } from "./clock.ts";
import { SqliteCommits } from "./commits.ts";
import { inTransaction } from "./file.ts";
import { openToWrite } from "./open-to-write.ts";
import { Statements } from "./statements.ts";
import type { Handlers, SqliteThreadData } from "./thread.ts";
import { sumOnSqlite } from "./usage-sums.ts";

export function openWriter({ file, plans, upgrade, clock, clockAcceptedBy }: SqliteThreadData): Handlers {
  const db = openToWrite(file, { nowMs: machineOf(clock).clockMs(), plans, upgrade });
  try {
    const time = new SqliteClock(db, clock, clockAcceptedBy);
    const ledger = new SqliteCommits(db, () => time.read());
    const statements = new Statements(db);
    return {
      commit: (...args) => time.watch(() => ledger.commit(...args)),
      putAccount: (...args) => time.watch(() => ledger.putAccount(...args)),
      applyPlans: (...args) => time.watch(() => ledger.applyPlans(...args)),
      clock: () => time.look(),
      write(written) {
        const work = () => written.map((each) => statements.rows(each));
        const rows = time.watch(() => inTransaction(db, work));
        return answerOf(written, rows) ?? [];
      },
      sumUsage: (timezone) => sumOnSqlite(db, statements, { nowMs: time.read().atMs, timezone }),
      close: () => db.close(),
    };
  } catch (error) {
    // The start is refused.
    db.close();
    throw error;
  }
}
