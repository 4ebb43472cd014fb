/**
 * The workloads whose figures a release states, each with its target and its floor from the same
 * run, and docs/performance.md from them. Its text says how they are measured. Under 20 minutes on
 * two cores:
 *
 *   npm run bench -- release [--seconds 10] [--warm 0] [--passes 3] [--clients 32] [--long 60] \
 *     [--idle 12] [--answer pieces] [--write true] \
 *     [--only answers,postgres,ledger,workers,prompts,memory,engine]
 *
 * A pass has `--warm` seconds that are not counted, none for a release, and `--seconds`. `--long`:
 * a run on PostgreSQL, whose first sixth is not counted. `--idle`: before idle memory is read.
 * `--answer`: of the mock upstream, `short` with one token, `burst` with 64 in one piece, `pieces`
 * with 64 that arrive one by one. `--write false` leaves the page as it is. With
 * LLAMA_SERVER=/path/to/llama-server, the embedded engine is measured against that program.
 * `--upstream PORT --only other --other JSON` measures another gateway (docs/performance.md).
 */
import { downloadedModel } from "../test/fixtures/program.ts";
import { optionsOf } from "./options.ts";
import { answers, longPrompts, memory, onPostgres, otherGateway, workers } from "./release/http.ts";
import type { Options, Result } from "./release/measure.ts";
import { describeRun, sectionOf, writePage } from "./release/page.ts";
import { engine, ledger } from "./release/parts.ts";
import { startServer } from "./servers.ts";
import { upstreamAnswers } from "./upstream-answers.ts";

const workloads: Record<string, (options: Options) => Promise<Result[]>> = {
  answers,
  postgres: onPostgres,
  ledger,
  workers,
  prompts: longPrompts,
  memory,
  engine,
  other: otherGateway,
};

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    seconds: "10",
    passes: "3",
    clients: "32",
    long: "60",
    idle: "12",
    answer: "pieces",
    warm: "0",
    only: Object.keys(workloads).join(","),
    write: "true",
    upstream: "0",
    other: undefined,
  });
  const only = values.only.split(",");
  const unknown = only.find((name) => !(name in workloads));
  if (unknown !== undefined)
    throw new Error(`no workload "${unknown}": ${Object.keys(workloads).join(", ")}`);
  const answer = upstreamAnswers.find(({ id }) => id === values.answer);
  if (answer === undefined) throw new Error(`the mock upstream has no answer "${values.answer}"`);
  if (only.includes("engine") && process.env.LLAMA_SERVER !== undefined && downloadedModel === null)
    throw new Error(
      "llama-server needs the default model: `npm start` downloads it, or INKWELL_TEST_MODEL names its file",
    );
  const about = describeRun();
  // The other gateway's key is nobody's business.
  const shown = Object.entries({ ...values, other: undefined })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `--${name} ${value}`);
  about.push(["options", `\`${shown.join(" ")}\``]);
  await using mock = await startServer({ which: "upstream", clients: 0, port: Number(values.upstream) });
  const options: Options = {
    clients: Number(values.clients),
    seconds: Number(values.warm) + Number(values.seconds),
    passes: Number(values.passes),
    longSeconds: Number(values.long),
    skippedSeconds: Number(values.warm),
    idleSeconds: Number(values.idle),
    answer,
    other: values.other === undefined ? null : JSON.parse(values.other),
    upstream: `http://127.0.0.1:${mock.port}`,
  };
  const results: Result[] = [];
  const beganMs = performance.now();
  const sectionNow = () => {
    const took = `${((performance.now() - beganMs) / 60_000).toFixed(1)} minutes`;
    return sectionOf([...about, ["took", took]], results);
  };
  try {
    for (const [name, measure] of Object.entries(workloads)) {
      if (!only.includes(name)) continue;
      process.stderr.write(`${name} ...\n`);
      results.push(...(await measure(options)));
    }
  } finally {
    // Also what was measured before a failure.
    console.log(sectionNow());
  }
  if (values.write === "true") writePage(sectionNow());
}
