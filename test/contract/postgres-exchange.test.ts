/** Statements that are sent to PostgreSQL with one write. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Connection, commitPool, inTransaction } from "../../src/store/postgres/connection-pool.ts";
import { sqlState } from "../../src/store/postgres/errors.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";

describe("exchanges with PostgreSQL", { skip: noPostgres ?? false }, () => {
  let server: Postgres;
  let database: string;

  before(async () => {
    server = await postgres();
    database = await server.create();
    await server.sql("create schema inkwell; create table inkwell.entry (n bigint primary key)", database);
  });

  after(() => server.drop(database));

  async function onConnection(use: (connection: Connection) => Promise<void>): Promise<void> {
    const pool = commitPool(server.url(database), 1);
    const connection = await pool.connect();
    try {
      await use(connection);
    } finally {
      connection.release();
      await pool.end();
    }
  }

  const insert = (n: unknown) => ({
    name: "insert",
    text: "insert into entry values ($1::bigint)",
    values: [n],
  });
  const entries = { name: "entries", text: "select n from entry order by n" };

  test("each statement sees the one before, and cells have the types of their columns", () =>
    onConnection(async (connection) => {
      const cells = {
        text: `select $1::bigint, $2::bigint, $3::text, $4::boolean, $5::float8, '{a,"b c",null}'::text[], $6::text`,
        values: [Number.MAX_SAFE_INTEGER, 2n ** 60n, 'ä"\\', true, 0.25, null],
      };
      const nothing = { text: "" };
      for (const round of [1, 2]) {
        assert.deepEqual(await connection.exchange([insert(round), nothing, entries, cells]), [
          [],
          [],
          Array.from({ length: round }, (_, n) => [n + 1]),
          [[Number.MAX_SAFE_INTEGER, 2n ** 60n, 'ä"\\', true, 0.25, ["a", "b c", null], null]],
        ]);
      }
      await connection.query({ text: "truncate entry" });
      assert.deepEqual(await connection.exchange([]), []);
    }));

  test("an error skips the rest, and what the exchange would have prepared is prepared later", () =>
    onConnection(async (connection) => {
      const begin = { name: "begin", text: "begin" };
      const commit = { name: "commit", text: "commit" };
      await assert.rejects(
        connection.exchange([begin, insert(1), insert(1), entries, commit]),
        (error) => sqlState(error) === "23505",
      );
      await connection.query({ text: "rollback" });
      assert.deepEqual(await connection.exchange([entries]), [[]]);
      await connection.exchange([begin, insert(1), commit]);
      assert.deepEqual(await connection.exchange([entries, entries]), [[[1]], [[1]]]);
    }));

  test("statements that the server has dropped, or that a migration changed, are prepared again", () =>
    onConnection(async (connection) => {
      const kinds = { name: "kinds", text: "select * from kind" };
      await connection.query({ text: "create temporary table kind as select 1::bigint as id" });
      assert.deepEqual(await connection.exchange([kinds]), [[[1]]]);
      await connection.query({ text: "alter table kind alter id type text" });
      await assert.rejects(connection.exchange([kinds]), /cached plan must not change result type/);
      assert.deepEqual(await connection.exchange([kinds]), [[["1"]]]);
      await connection.query({ text: "deallocate all" });
      await assert.rejects(connection.exchange([kinds]), (error) => sqlState(error) === "26000");
      assert.deepEqual(await connection.exchange([kinds]), [[["1"]]]);
    }));

  test("a commit that the server answers with a rollback fails", () =>
    onConnection(async (connection) => {
      const commit = { name: "commit", text: "commit" };
      await connection.exchange([{ text: "begin" }]);
      await assert.rejects(connection.exchange([{ text: "select 1 / 0" }]));
      await assert.rejects(connection.exchange([commit]), /rolled back in place of a commit/);
      await assert.rejects(
        inTransaction({ connect: async () => ({ ...connection, release() {} }) }, async () => {
          await connection.exchange([{ text: "select 1 / 0" }]).catch(() => {});
        }),
        /rolled back in place of a commit/,
      );
    }));

  test("a connection with an open transaction is not used again", async () => {
    const pool = commitPool(server.url(database), 1);
    const idOf = async (connection: Connection) =>
      (await connection.exchange([{ text: "select pg_backend_pid()" }]))[0];
    const first = await pool.connect();
    const before = await idOf(first);
    await first.exchange([{ text: "begin" }, insert(7)]);
    first.release();
    const second = await pool.connect();
    assert.notDeepEqual(await idOf(second), before);
    second.release();
    const third = await pool.connect();
    assert.deepEqual(await third.exchange([entries]), [[[1]]]);
    third.release();
    await pool.end();
  });

  test("a cell that cannot be read fails its exchange, and the connection stays usable", () =>
    onConnection(async (connection) => {
      const half = { text: "select 1, 0.5::numeric" };
      await assert.rejects(connection.exchange([half, entries]), SyntaxError);
      assert.deepEqual(await connection.exchange([entries]), [[[1]]]);
    }));

  test("a parameter that is a list is refused before anything is sent", () =>
    onConnection(async (connection) => {
      await assert.rejects(connection.exchange([insert(2), insert([3])]), /a list is a literal/);
      assert.deepEqual(await connection.exchange([entries]), [[[1]]]);
    }));
});
