/**
 * One account sends prompts that are just too long, which are refused only after they were
 * tokenized. How fast is the answer of another account decoded meanwhile, against the same with
 * nothing beside it?
 *
 *   npm run bench -- preparation [--model FILE] [--connections 6] [--seconds 6] [--rounds 3] \
 *     [--threads N]
 *
 * The two are measured in turns. The target is a ratio of 0.85.
 */

import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readTokens, requestStream, startLlamaService } from "./llama-service.ts";
import { defaultModel, optionsOf } from "./options.ts";
import { medianOf } from "./servers.ts";
import type { Service } from "./service.ts";

const contextWindow = 8192;
const maxTokens = contextWindow;
const settleMs = 1000;

/** Each word is a token at least, and no size alone says that there are too many. */
const tooLong = "the sea ".repeat(contextWindow / 2 + 200);

/** An answer without an end; another is asked for if it has one nevertheless. */
async function neighbour(service: Service, signal: AbortSignal, onToken: () => void): Promise<void> {
  while (!signal.aborted) {
    const content = "Write an endless story about the sea.";
    await readTokens(await requestStream(service, { account: 1, content, maxTokens, signal }), onToken);
  }
}

async function refused(service: Service, signal: AbortSignal, onRefusal: (code: number) => void) {
  while (!signal.aborted) {
    const { body, statusCode } = await requestStream(service, {
      account: 0,
      content: tooLong,
      maxTokens,
      signal,
    });
    await body.text();
    if (statusCode === 200) throw new Error("the prompt was not too long");
    onRefusal(statusCode);
    // A refused client retries after a pause.
    if (statusCode === 429 || statusCode === 503) await sleep(100, undefined, { signal });
  }
}

const untilAborted = (promise: Promise<void>, signal: AbortSignal) =>
  promise.catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });

/** Tokens per second of the neighbour, and the status codes that the flood got. */
async function measure(service: Service, connections: number, seconds: number) {
  const stopped = new AbortController();
  let tokens = 0;
  const codes = new Map<number, number>();
  const work = [
    untilAborted(
      neighbour(service, stopped.signal, () => {
        tokens += 1;
      }),
      stopped.signal,
    ),
  ];
  await sleep(settleMs);
  for (let n = 0; n < connections; n += 1) {
    const count = (code: number) => codes.set(code, (codes.get(code) ?? 0) + 1);
    work.push(untilAborted(refused(service, stopped.signal, count), stopped.signal));
  }
  await sleep(settleMs);
  const before = tokens;
  const startedMs = performance.now();
  await sleep(seconds * 1000);
  const perSecond = (tokens - before) / ((performance.now() - startedMs) / 1000);
  stopped.abort();
  await Promise.all(work);
  return { perSecond, codes };
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    model: defaultModel,
    connections: "6",
    seconds: "6",
    rounds: "3",
    threads: undefined,
  });
  await using service = await startLlamaService({
    model: resolve(values.model),
    parallel: 4,
    contextWindow,
    accounts: 2,
    ...(values.threads === undefined ? {} : { threads: Number(values.threads) }),
  });
  const alone: number[] = [];
  const beside: number[] = [];
  const codes = new Map<number, number>();
  const seconds = Number(values.seconds);
  for (let round = 0; round < Number(values.rounds); round += 1) {
    alone.push((await measure(service, 0, seconds)).perSecond);
    const flooded = await measure(service, Number(values.connections), seconds);
    beside.push(flooded.perSecond);
    for (const [code, count] of flooded.codes) codes.set(code, (codes.get(code) ?? 0) + count);
  }
  const ratios = beside.map((each, round) => each / (alone[round] ?? Number.NaN));
  console.table({
    "alone tok/s": medianOf(alone).toFixed(1),
    "beside the flood tok/s": medianOf(beside).toFixed(1),
    ratio: medianOf(ratios).toFixed(2),
    "ratios of the rounds": ratios.map((ratio) => ratio.toFixed(2)).join(" "),
    "answers to the flood": [...codes].map(([code, count]) => `${count} of ${code}`).join(", "),
  });
}
