/** The database of `torture-kill.ts`: its rows, and an audit, beside services or after them. */
import assert from "node:assert/strict";
import { escapeLiteral } from "pg";
import { auditDatabase } from "../src/store/postgres/audit.ts";
import type { SqlRow } from "../test/fixtures/backends.ts";
import { assertSoundLedger, query } from "../test/fixtures/ledger-file.ts";
import { queriesOfTests, start } from "../test/fixtures/postgres.ts";
import { until } from "../test/fixtures/until.ts";

export interface TorturedLedger {
  /** Settings with which a program uses it. */
  readonly env: Record<string, string>;
  /** Rows by column; `?` stands for a value. */
  query(sql: string, ...values: (string | number)[]): Promise<SqlRow[]>;
  /** Asserts that no invariant is broken, and how many holds are open. */
  assertSound(options?: { holds?: number }): Promise<void>;
  /** Resolves when nothing that a killed process sent is still being done. */
  settled(): Promise<void>;
}

export const ledgers: Record<string, (folder: string) => Promise<TorturedLedger>> = {
  SQLite: async (folder) => ({
    env: {},
    query: async (sql, ...values) => query(folder, sql, ...values),
    assertSound: async (options) => assertSoundLedger(folder, options),
    settled: async () => {},
  }),
  PostgreSQL: async () => {
    const server = await start();
    const name = await server.create();
    const rows = (sql: string, ...values: (string | number)[]) => {
      const rest = values.values();
      return server.sql(
        sql.replaceAll("?", () => escapeLiteral(String(rest.next().value))),
        name,
      );
    };
    return {
      env: { INKWELL_DATABASE: server.url(name) },
      query: rows,
      async assertSound({ holds = 0 } = {}) {
        const { broken } = await auditDatabase(server.url(name), null);
        assert.deepEqual(broken, []);
        const [open] = await rows("select count(*) as n from hold");
        assert.equal(open?.n, holds, "open holds");
      },
      async settled() {
        // The server finishes a statement before it notices that its client has gone.
        const sql = `select from pg_stat_activity where datname = '${name}' and backend_type = 'client backend'
          and application_name <> '${queriesOfTests}'`;
        await until("no session is left", async () => (await server.sql(sql)).length === 0);
      },
    };
  },
};
