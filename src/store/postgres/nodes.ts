/**
 * The registry of the nodes on a PostgreSQL database. All times are those of the database's clock.
 */
import { invariant } from "../../errors.ts";
import { type ConfigFingerprint, type NodeRegistry, type NodeRow, silentMs } from "../nodes.ts";
import { serverMs } from "./clock.ts";
import type { ConnectionPool } from "./connection-pool.ts";
import type { Cell } from "./rows.ts";

/** The row of a node without heartbeats for this time is deleted. */
const forgottenMs = 3_600_000;

const heartbeat = `
  with clock as materialized (select ${serverMs} as now_ms),
  forgotten as (delete from node using clock where seen_ms < now_ms - ${forgottenMs})
  insert into node (id, version, started_ms, seen_ms, agreement) select $1, $2, now_ms, now_ms, $3::json from clock
  on conflict (id) do update set seen_ms = excluded.seen_ms, agreement = excluded.agreement`;

const living = `
  select id, version, started_ms, seen_ms, agreement from node
  where seen_ms >= ${serverMs} - ${silentMs} order by started_ms, id`;

export function postgresNodes(pool: ConnectionPool): NodeRegistry {
  return {
    async heartbeat({ id, version, fingerprint }) {
      await pool.query({ text: heartbeat, values: [id, version, JSON.stringify(fingerprint)] });
      return (await pool.query({ text: living })).rows.map(nodeOf);
    },
    async leave(id) {
      await pool.query({ text: "delete from node where id = $1", values: [id] });
    },
  };
}

function nodeOf([id, version, startedMs, seenMs, fingerprint]: Cell[]): NodeRow {
  invariant(
    typeof startedMs === "number" && typeof seenMs === "number",
    "a node has a start and a heartbeat",
  );
  return {
    id: String(id),
    version: String(version),
    startedMs,
    seenMs,
    fingerprint: fingerprintIn(fingerprint),
  };
}

function fingerprintIn(found: unknown): ConfigFingerprint {
  invariant(typeof found === "object" && found !== null, "a fingerprint is an object");
  return Object.fromEntries(Object.entries(found).map(([name, words]) => [name, String(words)]));
}
