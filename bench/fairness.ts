/**
 * One account floods the embedded engine, others ask for ten tokens: how long until their first
 * token, beside the same on an idle service, and what taking turns costs in tokens per second.
 *
 *   npm run bench -- fairness [--model FILE] [--accounts 1,2,4,8] [--rounds 2] [--seconds 8] \
 *     [--threads N] [--warm 6]
 *
 * `--warm` is the time for each of nine accounts to have its first turn, in seconds: until then
 * prompts are evaluated, which makes no tokens. A third of it is time for a flood to fill the
 * slots and to have run for longer than the shortest run.
 *
 * The flood is eight requests of one account with `max_tokens: 7000` for four slots. The others
 * come all at once. The target for each is a second and twice the time that the slowest of as many
 * takes on an idle service. For the throughput every account floods, so that slots change hands
 * all the time; the floor of the ratio is one account that floods alone, for which nothing is ever
 * paused.
 */

import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readTokens, requestStream, startLlamaService } from "./llama-service.ts";
import { defaultModel, numbersOf, optionsOf } from "./options.ts";
import type { Service } from "./service.ts";

const parallel = 4;
const floodRequests = 8;
const floodTokens = 7000;

let prompts = 0;

/** No two prompts begin alike, so that none is evaluated from another's memory. */
function nextPrompt(): string {
  prompts += 1;
  return `Chapter ${1000 + prompts}: write a very long, endless story about the sea, with many details, and do not stop early.`;
}

/** Calls `onToken` for each token; resolves at the end of the answer, or when it is aborted. */
async function answer(
  service: Service,
  account: number,
  maxTokens: number,
  onToken: () => void,
  signal: AbortSignal,
): Promise<void> {
  try {
    const response = await requestStream(service, { account, content: nextPrompt(), maxTokens, signal });
    await readTokens(response, onToken);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Milliseconds until the first token of an answer of ten. */
async function firstTokenMs(service: Service, account: number): Promise<number> {
  const startedMs = performance.now();
  let ms: number | null = null;
  const onToken = () => {
    ms ??= performance.now() - startedMs;
  };
  await answer(service, account, 10, onToken, AbortSignal.timeout(150_000));
  return ms ?? Number.POSITIVE_INFINITY;
}

/** As many requests at once, each begun anew when it ends. */
function flood(service: Service, account: number, requests: number) {
  const stopped = new AbortController();
  let tokens = 0;
  const onToken = () => {
    tokens += 1;
  };
  const one = async () => {
    while (!stopped.signal.aborted) await answer(service, account, floodTokens, onToken, stopped.signal);
  };
  const ended = Promise.all(Array.from({ length: requests }, one));
  return {
    get tokens() {
      return tokens;
    },
    async stop() {
      stopped.abort();
      await ended;
    },
  };
}

/** Tokens per second of all of them together. */
async function throughput(
  service: Service,
  accounts: number,
  { seconds, warmMs }: { seconds: number; warmMs: number },
): Promise<number> {
  const floods = Array.from({ length: accounts }, (_, account) => flood(service, account, floodRequests));
  await sleep(warmMs);
  const made = () => floods.reduce((sum, { tokens }) => sum + tokens, 0);
  const before = made();
  const startedMs = performance.now();
  await sleep(seconds * 1000);
  const perSecond = (made() - before) / ((performance.now() - startedMs) / 1000);
  await Promise.all(floods.map((each) => each.stop()));
  return perSecond;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    model: defaultModel,
    accounts: "1,2,4,8",
    rounds: "2",
    seconds: "8",
    threads: undefined,
    warm: "6",
  });
  const warmMs = Number(values.warm) * 1000;
  const measuring = { seconds: Number(values.seconds), warmMs };
  const counts = numbersOf(values.accounts);
  await using service = await startLlamaService({
    model: resolve(values.model),
    parallel,
    contextWindow: 8192,
    accounts: 1 + Math.max(...counts),
    ...(values.threads === undefined ? {} : { threads: Number(values.threads) }),
  });
  // The first is not counted, so that files are in memory and code is compiled.
  await firstTokenMs(service, 0);
  const rows: Record<string, string>[] = [];
  for (const count of counts) {
    const newcomers = () =>
      Promise.all(Array.from({ length: count }, (_, n) => firstTokenMs(service, n + 1)));
    const idle: number[] = [];
    for (let round = 0; round < 3; round += 1) idle.push(Math.max(...(await newcomers())));
    const idleMs = idle.toSorted((left, right) => left - right)[1] ?? Number.NaN;
    const boundMs = 1000 + 2 * idleMs;
    const waits: number[] = [];
    for (let round = 0; round < Number(values.rounds); round += 1) {
      const flooding = flood(service, 0, floodRequests);
      await sleep(warmMs / 3);
      waits.push(...(await newcomers()));
      await flooding.stop();
    }
    const alone = await throughput(service, 1, measuring);
    const shared = await throughput(service, 1 + count, measuring);
    const slowestMs = Math.max(...waits);
    console.error(
      `${count} others: first tokens after ${waits.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}`,
    );
    rows.push({
      "other accounts": `${count}`,
      "idle, slowest first token": `${idleMs.toFixed(0)} ms`,
      "flooded, slowest first token": `${slowestMs.toFixed(0)} ms`,
      target: `${boundMs.toFixed(0)} ms`,
      "of the target": (slowestMs / boundMs).toFixed(2),
      "one account tok/s": alone.toFixed(1),
      "all in turns tok/s": shared.toFixed(1),
      ratio: (shared / alone).toFixed(2),
    });
  }
  console.log(`one account with ${floodRequests} requests of ${floodTokens} tokens, ${parallel} slots`);
  console.table(rows);
}
