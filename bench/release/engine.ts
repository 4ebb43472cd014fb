/** The embedded engine against the llama-server that LLAMA_SERVER names. */
import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { floorNames, measureEngine } from "../engine.ts";
import { defaultModel } from "../options.ts";
import { notMeasured, type Options, type Result, rangeOf } from "./measure.ts";

const targets = new Map([
  [1, "0.97"],
  [4, "0.95"],
  [8, "0.95"],
]);

export async function engine({ passes: rounds }: Options): Promise<Result[]> {
  const workload = "embedded engine, of a native llama-server";
  if (process.env.LLAMA_SERVER === undefined)
    return [notMeasured(workload, [...targets.values()].join(", "), "LLAMA_SERVER is not set")];
  const threads = availableParallelism();
  const results: Result[] = [];
  const settings = { model: defaultModel, threads, tokens: 128, rounds };
  for await (const { settings: asked, rounds } of measureEngine(settings, [...targets.keys()])) {
    const floor = rounds.map(({ floors }) => floors[floorNames.server]?.tokensPerSecond ?? Number.NaN);
    const own = rounds.map(({ inkwell }) => inkwell.tokensPerSecond);
    results.push({
      workload: `${workload}, ${asked.concurrent} at once, ${threads} threads, ${basename(asked.model)}`,
      result: rangeOf(own.map((rate, pass) => rate / (floor[pass] ?? Number.NaN))),
      byTime: "",
      target: targets.get(asked.concurrent) ?? "none",
      figures: [
        ["Inkwell", `${rangeOf(own, 1)} tokens/s`],
        ["llama-server", `${rangeOf(floor, 1)} tokens/s`],
      ],
    });
  }
  return results;
}
