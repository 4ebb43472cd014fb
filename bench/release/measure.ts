/** Servers, passes and comparison with the floor, for the workloads of `bench/release.ts`. */
import { setTimeout as sleep } from "node:timers/promises";
import { given } from "../../src/objects.ts";
import type { BareTask } from "../bare-gateway.ts";
import { processorMs } from "../processes.ts";
import { cores, load, startServer } from "../servers.ts";
import { type Service, startService } from "../service.ts";
import { type UpstreamAnswer, upstreamAnswers } from "../upstream-answers.ts";

export interface Options {
  clients: number;
  seconds: number;
  /** Answers that end before are not counted. */
  skippedSeconds: number;
  passes: number;
  longSeconds: number;
  idleSeconds: number;
  /** Origin of the mock upstream, and the answer that is asked of it. */
  upstream: string;
  answer: UpstreamAnswer;
  other: OtherGateway | null;
}

/** A gateway that runs already, on the core of servers. */
export interface OtherGateway {
  title: string;
  port: number;
  pid: number;
  /** Its models for the mock's answer: at `/ANSWER/whole/v1`, and at `/ANSWER/v1`. */
  whole?: string;
  streamed?: string;
  key: string;
  headers?: Record<string, string>;
}

/** A row of the page. */
export interface Result {
  workload: string;
  /** Of the floor, by rate, unless it names a unit. */
  result: string;
  byTime: string;
  target: string;
  /** Absolute figures of each server. */
  figures: [server: string, text: string][];
}

export function notMeasured(workload: string, target: string, reason: string): Result {
  return { workload, result: `not measured: ${reason}`, byTime: "", target, figures: [] };
}

/** Figures of one pass. */
export interface Pass {
  rate: number;
  /** Of the processor, for each request. NaN: not measured. */
  cpuMicros: number;
  /** Part of it in the database. */
  databaseMicros?: number;
  /** Share of the core, with the database. Well below 1, clients or upstream were slower. */
  busy?: number;
  p50Ms?: number;
  bySecond?: number[];
}

/** Passes of a server. */
export interface Ran {
  title: string;
  passes: Pass[];
  /** Name of one in the counts. Default: a request. */
  unit?: string;
  /** Of each answer. */
  tokens?: number;
  note?: string;
}

export interface Target extends AsyncDisposable {
  port: number;
  keys: string[];
  process: { pid?: number | undefined };
  /** Of the database, whose processor time counts too. */
  postmaster?: number;
  version?: string;
}

export interface Side extends Ran {
  body: object;
  headers?: Record<string, string>;
  /** Default 200. */
  status?: number;
  start(): Promise<Target>;
}

/**
 * The whole service with the mock upstream as its models, on the core of servers; with `workers`,
 * on all cores.
 */
export function startInkwell(
  { upstream, clients }: Pick<Options, "upstream" | "clients">,
  {
    database,
    accounts = clients,
    workers,
  }: { database?: string | undefined; accounts?: number; workers?: number | undefined } = {},
): Promise<Service> {
  const models = Object.fromEntries(
    upstreamAnswers.map(({ id }) => [
      id,
      {
        engine: "upstream",
        url: `${upstream}/${id}/v1`,
        model: id,
        context_window: 131_072,
        // As many as the bare gateway has connections.
        parallel: Math.max(64, clients),
        price: { prompt: 1, completion: 1 },
      },
    ]),
  );
  const config = { models, ...given({ database, workers }) };
  return startService({ config, accounts, ...(workers === undefined ? { core: cores.server } : {}) });
}

export function startBare({ upstream, clients }: Options, which: BareTask["which"] = "proxy") {
  return startServer({ which, clients, upstream });
}

/** Processor time is that of the process and of all that it has started, and of the database. */
export async function measurePass(
  { port, keys, process: { pid = Number.NaN }, postmaster }: Target,
  { body, headers = {}, status = 200 }: Pick<Side, "body" | "headers" | "status">,
  { seconds, skippedSeconds: fromSeconds, clients }: Pick<Options, "seconds" | "skippedSeconds" | "clients">,
): Promise<Pass> {
  const cpuMs = () => [processorMs(pid), postmaster === undefined ? 0 : processorMs(postmaster)];
  const begin = async () => {
    if (fromSeconds > 0) await sleep(fromSeconds * 1000);
    return cpuMs();
  };
  const task = { port, keys: keys.slice(0, clients), body, headers, status, seconds, fromSeconds };
  const [result, beforeMs] = await Promise.all([load(task), begin()]);
  const [own = 0, database = 0] = cpuMs().map((ms, n) => (ms - (beforeMs[n] ?? 0)) * 1000);
  const { requests, p50Ms, bySecond } = result;
  return {
    rate: requests / result.seconds,
    cpuMicros: (own + database) / requests,
    ...(postmaster === undefined ? {} : { databaseMicros: database / requests }),
    busy: (own + database) / (result.seconds * 1e6),
    p50Ms,
    bySecond,
  };
}

/** The order of each pass begins one further. */
export function rotated<Item>(items: readonly Item[], pass: number): Item[] {
  const at = pass % items.length;
  return [...items.slice(at), ...items.slice(0, at)];
}

/** Starts each server anew for each pass. `also` may use it after the pass. */
export async function runPasses(
  options: Options,
  sides: readonly Side[],
  also: (server: Target, side: Side) => Promise<void> = async () => {},
): Promise<void> {
  for (let pass = 0; pass < options.passes; pass += 1) {
    for (const side of rotated(sides, pass)) {
      await using server = await side.start();
      side.passes.push(await measurePass(server, side, options));
      await also(server, side);
    }
  }
}

/** The least and the most, as in "0.15 to 0.17". */
export function rangeOf(values: readonly number[], digits = 2): string {
  const [least = "", most = ""] = [Math.min(...values), Math.max(...values)].map((value) =>
    value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
  );
  return least === most ? least : `${least} to ${most}`;
}

/** Ratios of passes with the same number; if the floor has more passes, to each of those. */
export function compared(workload: string, target: string, product: Ran, floor: Ran): Result {
  const isPaired = product.passes.length === floor.passes.length;
  const pairs = product.passes.flatMap((one, pass) =>
    floor.passes.filter((_, n) => !isPaired || n === pass).map((other) => ({ one, other })),
  );
  const byTime = pairs.map(({ one, other }) => other.cpuMicros / one.cpuMicros);
  return {
    workload,
    result: rangeOf(pairs.map(({ one, other }) => one.rate / other.rate)),
    byTime: byTime.some(Number.isNaN) ? "" : rangeOf(byTime),
    target,
    figures: [product, floor].map((ran) => [ran.title, figuresOf(ran)]),
  };
}

function figuresOf({ passes, unit = "request", tokens, note = "" }: Ran): string {
  const range = (of: (pass: Pass) => number, text: string, digits = 0) => {
    const values = passes.map(of);
    return values.some(Number.isNaN) ? [] : [text.replace("%", rangeOf(values, digits))];
  };
  return [
    ...range(({ rate }) => rate, `% ${unit}s/s`),
    ...range(({ rate }) => rate * (tokens ?? Number.NaN), "% tokens/s"),
    ...range(({ cpuMicros }) => cpuMicros, `% µs of processor for each ${unit}`),
    ...range(({ databaseMicros = Number.NaN }) => databaseMicros, "% µs of them in the database"),
    ...range(({ busy = Number.NaN }) => busy * 100, "% % of the core"),
    ...range(({ p50Ms = Number.NaN }) => p50Ms, "p50 % ms", 2),
    note,
  ]
    .filter((part) => part !== "")
    .join("; ");
}
