/**
 * Whole and streamed answers before an upstream that streams 64 events, and one client. Each pass
 * starts each server anew and measures it from its first request.
 */
import { closeSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { medianOf } from "../servers.ts";
import { checkAnswer } from "../upstream.ts";
import { upstreamAnswers } from "../upstream-answers.ts";
import {
  bodyOf,
  compared,
  figuresOf,
  type MeasuredRun,
  measureRun,
  type Options,
  type Result,
  rangeOf,
  rotated,
  startBare,
  startInkwell,
  type Target,
} from "./measure.ts";

const pieces = upstreamAnswers.find(({ id }) => id === "pieces");

/** Median of appends of a page to a file of this folder, each with its fsync. */
function fsyncMs(folder: string): number {
  const path = join(folder, "fsyncs");
  const file = openSync(path, "w");
  const page = Buffer.alloc(4096);
  const tookMs = Array.from({ length: 200 }, () => {
    const beganMs = performance.now();
    writeSync(file, page);
    fsyncSync(file);
    return performance.now() - beganMs;
  });
  closeSync(file);
  rmSync(path);
  return medianOf(tookMs);
}

export async function answers(options: Options): Promise<Result[]> {
  if (pieces === undefined) throw new Error("the mock has the answer in pieces");
  const { seconds } = options;
  const fsyncsMs: number[] = [];
  const side = (stream: boolean, start: () => Promise<Target & AsyncDisposable>) => ({
    stream,
    start,
    passes: [] as MeasuredRun[],
    /** With one client, after the pass. */
    alone: [] as MeasuredRun[],
  });
  const startMeasured = async () => {
    const service = await startInkwell(options);
    fsyncsMs.push(fsyncMs(service.folder));
    return service;
  };
  const whole = side(false, startMeasured);
  const bare = side(false, () => startBare(options));
  const reader = side(false, () => startBare(options, "reader"));
  const streamed = side(true, () => startInkwell(options));
  const bareStreamed = side(true, () => startBare(options));
  for (let pass = 0; pass < options.passes; pass += 1) {
    for (const { stream, start, passes, alone } of rotated(
      [whole, bare, reader, streamed, bareStreamed],
      pass,
    )) {
      await using server = await start();
      const body = bodyOf("pieces", stream);
      passes.push(await measureRun(server, { body, seconds }));
      if (!stream) alone.push(await measureRun(server, { body, seconds: seconds / 4, clients: 1 }));
      await checkAnswer(server, body, pieces);
    }
  }
  const added = whole.alone.map(({ p50Ms }, pass) => p50Ms - (bare.alone[pass]?.p50Ms ?? Number.NaN));
  return [
    {
      workload: `whole answers, ${options.clients} clients, the server streams 64 events; the floor gets one JSON object`,
      ...compared(whole.passes, bare.passes),
      target: "0.30",
      figures: [
        ["Inkwell", figuresOf(whole.passes, pieces.tokens)],
        ["bare, one JSON object", figuresOf(bare.passes, pieces.tokens)],
      ],
    },
    {
      workload: "the same; the floor reads the same 64 events and makes the same object",
      ...compared(whole.passes, reader.passes),
      target: "0.60",
      figures: [["bare, reads the events", figuresOf(reader.passes, pieces.tokens)]],
    },
    {
      workload: `streamed tokens, ${options.clients} clients; the floor passes on the bytes`,
      ...compared(streamed.passes, bareStreamed.passes),
      target: "0.85",
      figures: [
        ["Inkwell", figuresOf(streamed.passes, pieces.tokens)],
        ["bare, passes on the bytes", figuresOf(bareStreamed.passes, pieces.tokens)],
      ],
    },
    {
      workload: "one client, whole answers, SQLite: what is added to the p50 of the floor",
      result: `${rangeOf(added)} ms`,
      byTime: compared(whole.alone, bare.alone).byTime,
      target: `two fsyncs and 0.4 ms: ${rangeOf(fsyncsMs.map((ms) => 2 * ms + 0.4))} ms`,
      figures: [
        ["Inkwell", figuresOf(whole.alone)],
        ["bare, one JSON object", figuresOf(bare.alone)],
        ["fsync", `${rangeOf(fsyncsMs)} ms for a page of 4 KiB in the folder of the ledger, median of 200`],
      ],
    },
  ];
}
