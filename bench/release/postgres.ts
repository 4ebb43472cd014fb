/**
 * Whole and streamed answers on PostgreSQL, with the database on the core of the service, for a
 * minute. The floor runs before and after the databases.
 */
import { existsSync } from "node:fs";
import { noPostgres, start } from "../../test/fixtures/postgres.ts";
import { cores } from "../servers.ts";
import { versionOf } from "../steady.ts";
import {
  bodyOf,
  compared,
  figuresOf,
  type MeasuredRun,
  measureRun,
  notMeasured,
  type Options,
  type Result,
  rangeOf,
  startBare,
  startInkwell,
} from "./measure.ts";

const debian = "/usr/lib/postgresql/15/bin";

interface Database {
  title: string;
  programs?: string;
  missing: string | null;
}

const databases: Database[] = [
  { title: "PostgreSQL 18, from npm", missing: noPostgres },
  {
    title: "PostgreSQL 15, of Debian",
    programs: debian,
    missing: existsSync(debian) ? noPostgres : "not installed",
  },
];

export async function onPostgres(options: Options): Promise<Result[]> {
  const results: Result[] = [];
  const { longSeconds, skippedSeconds: fromSeconds } = options;
  for (const stream of [false, true]) {
    const body = bodyOf("pieces", stream);
    const kind = stream ? "streamed tokens" : "whole answers";
    const target = stream ? "0.60" : "0.20";
    const floor: MeasuredRun[] = [];
    const measureFloor = async () => {
      await using bare = await startBare(options);
      const seconds = fromSeconds + (longSeconds - fromSeconds) / 5;
      floor.push(await measureRun(bare, { body, fromSeconds, seconds }));
    };
    const ran: [Database, MeasuredRun, string][] = [];
    await measureFloor();
    for (const database of stream ? databases.toReversed() : databases) {
      if (database.missing !== null)
        results.push(notMeasured(`${kind}, ${database.title}`, target, database.missing));
      else ran.push([database, ...(await measureOn(database, options, body))]);
    }
    await measureFloor();
    for (const [{ title }, measured, version] of ran) {
      const { bySecond } = measured;
      const tens = Array.from({ length: Math.floor((longSeconds - fromSeconds) / 10) }, (_, n) =>
        bySecond
          .slice(fromSeconds + 10 * n, fromSeconds + 10 * n + 10)
          .reduce((sum, each) => sum + each / 10, 0),
      );
      const byTens = tens.length < 2 ? "" : `; by 10 s ${tens.map((rate) => rate.toFixed(0)).join(" ")}`;
      const database = `the database ${rangeOf([measured.besideMicrosPerRequest], 0)} µs of it`;
      results.push({
        workload: `${kind}, ${title}, database on the same core, from the ${fromSeconds}th to the ${longSeconds}th second`,
        ...compared([measured], floor),
        target,
        figures: [
          [`Inkwell on PostgreSQL ${version}`, `${figuresOf([measured], 64)}; ${database}${byTens}`],
          [stream ? "bare, passes on the bytes" : "bare, one JSON object", figuresOf(floor, 64)],
        ],
      });
    }
  }
  return results;
}

async function measureOn(
  { programs }: Database,
  options: Options,
  body: object,
): Promise<[MeasuredRun, version: string]> {
  const core = cores.server;
  const server = await start({ durable: true, core, ...(programs === undefined ? {} : { programs }) });
  try {
    const database = server.url(await server.create());
    const { version, postmaster } = await versionOf(database);
    await using service = await startInkwell(options, { database });
    const { longSeconds: seconds, skippedSeconds: fromSeconds } = options;
    const run = { body, seconds, fromSeconds, beside: postmaster };
    return [await measureRun(service, run), version.split(" ")[0] ?? ""];
  } finally {
    await server.kill();
  }
}
