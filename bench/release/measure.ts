/** What the workloads of `bench/release.ts` share: servers, their measurement, and results. */
import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import type { BareTask } from "../bare-gateway.ts";
import { processorMs } from "../processes.ts";
import { cores, load, type Measured, medianOf, startServer } from "../servers.ts";
import { type Service, startService } from "../service.ts";

export interface Options {
  clients: number;
  seconds: number;
  passes: number;
  /** Length of a run on PostgreSQL, and its first seconds, which are not counted. */
  longSeconds: number;
  skippedSeconds: number;
  idleSeconds: number;
  /** Origin of the mock upstream. */
  upstream: string;
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

export interface Target {
  port: number;
  keys: string[];
  process: ChildProcess;
}

/** The whole service on the core of servers, with the mock upstream as its model. */
export function startInkwell(
  { upstream, clients }: Options,
  { database, accounts = clients }: { database?: string; accounts?: number } = {},
): Promise<Service> {
  const models = Object.fromEntries(
    ["short", "pieces"].map((model) => [
      model,
      {
        engine: "upstream",
        url: `${upstream}/${model}/v1`,
        model,
        context_window: 131_072,
        // As many as the bare gateway has connections.
        parallel: Math.max(64, clients),
        price: { prompt: 1, completion: 1 },
      },
    ]),
  );
  const config = database === undefined ? { models } : { models, database };
  return startService({ config, accounts, core: cores.server });
}

export function startBare({ upstream, clients }: Options, which: BareTask["which"] = "proxy") {
  return startServer({ which, clients, upstream });
}

export function bodyOf(model: "short" | "pieces", stream: boolean) {
  const messages = [{ role: "user", content: "Count from one to ten in words." }];
  return { model, messages, max_tokens: 64, stream };
}

export interface Run {
  body: object;
  seconds: number;
  /** What ends before is not counted. Default 0. */
  fromSeconds?: number;
  /** Default: one for each key. */
  clients?: number;
  status?: number;
  /** Another process whose processor time counts too, such as the database. */
  beside?: number;
}

export interface MeasuredRun extends Measured {
  besideMicrosPerRequest: number;
}

/** Processor time is that of the process and of all that it has started. */
export async function measureRun({ port, keys, process: child }: Target, run: Run): Promise<MeasuredRun> {
  const { fromSeconds = 0, beside, clients, ...task } = run;
  const times = () => [processorMs(child.pid ?? Number.NaN), beside === undefined ? 0 : processorMs(beside)];
  const begin = async () => {
    if (fromSeconds > 0) await sleep(fromSeconds * 1000);
    return times();
  };
  const running = load({ ...task, port, keys: keys.slice(0, clients), fromSeconds });
  const [result, before] = await Promise.all([running, begin()]);
  const [own = 0, other = 0] = times().map((ms, at) => (ms - (before[at] ?? 0)) * 1000);
  return {
    ...result,
    cpuMicrosPerRequest: (own + other) / result.requests,
    besideMicrosPerRequest: other / result.requests,
    busy: (own + other) / (result.seconds * 1e6),
  };
}

/** The order of each pass begins one further. */
export function rotated<Item>(items: readonly Item[], pass: number): Item[] {
  const at = pass % items.length;
  return [...items.slice(at), ...items.slice(0, at)];
}

/** The least and the most, as in "0.15 to 0.17". */
export function rangeOf(values: readonly number[], digits = 2): string {
  const [least = "", most = ""] = [Math.min(...values), Math.max(...values)].map((value) =>
    value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
  );
  return least === most ? least : `${least} to ${most}`;
}

export const rateOf = ({ requests, seconds }: { requests: number; seconds: number }) => requests / seconds;

/** Ratios of each pass; without as many passes of the floor, to each of those. */
export function compared(product: readonly Measured[], floor: readonly Measured[]) {
  const pairs = product.flatMap((one, pass) =>
    (product.length === floor.length ? floor.slice(pass, pass + 1) : floor).map(
      (other) => [one, other] as const,
    ),
  );
  return {
    result: rangeOf(pairs.map(([one, other]) => rateOf(one) / rateOf(other))),
    byTime: rangeOf(pairs.map(([one, other]) => other.cpuMicrosPerRequest / one.cpuMicrosPerRequest)),
  };
}

/** The figures of all passes of a server. `tokens`: of each answer. */
export function figuresOf(passes: readonly Measured[], tokens?: number): string {
  const rates = passes.map(rateOf);
  const parts = [
    `${rangeOf(rates, 0)} requests/s`,
    ...(tokens === undefined
      ? []
      : [
          `${rangeOf(
            rates.map((rate) => rate * tokens),
            0,
          )} tokens/s`,
        ]),
    `${rangeOf(
      passes.map(({ cpuMicrosPerRequest }) => cpuMicrosPerRequest),
      0,
    )} µs of processor a request`,
    `core used ${rangeOf(
      passes.map(({ busy }) => busy * 100),
      0,
    )} %`,
    `p50 ${rangeOf(passes.map(({ p50Ms }) => p50Ms))} ms`,
    `p99 ${medianOf(passes.map(({ p99Ms }) => p99Ms)).toFixed(1)} ms`,
  ];
  return parts.join("; ");
}
