/**
 * Many streams at once through the whole HTTP path on one core: what each takes of memory, and
 * whether one of them starves. The engine is a scripted one that makes a token of each stream
 * after a fixed time, so that every stream would take equally long if nothing else took any.
 *
 *   npm run bench -- streams [--streams 1000] [--tokens 100] [--every 50]
 *
 * `--every`: milliseconds between two tokens of a stream. Two runs on one server: the first is
 * timed; in the middle of the second its memory is collected, and what remains is looked at.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { LoadTask } from "./load-client.ts";
import { optionsOf } from "./options.ts";
import { residentBytes } from "./processes.ts";
import { load, memoryOf, startServer } from "./servers.ts";

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    streams: "1000",
    tokens: "100",
    every: "50",
  });
  const streams = Number(values.streams);
  const tokens = Number(values.tokens);
  const tokenMs = Number(values.every);
  await using server = await startServer({ which: "inkwell", clients: streams, script: { tokens, tokenMs } });
  const { port, keys } = server;
  const messages = [{ role: "user", content: "Count from one to a hundred in words." }];
  const body = { model: "short", messages, max_tokens: tokens, stream: true };
  const task: LoadTask = { port, keys, body, seconds: 0 };
  const inTheMiddle = (tokens * tokenMs) / 2;

  // A few first, so that code is compiled and files are open.
  await load({ ...task, keys: keys.slice(0, 10) });
  const before = await memoryOf(server);

  const timed = load(task);
  await sleep(inTheMiddle);
  const resident = residentBytes(server.process.pid ?? Number.NaN);
  const { requests, p50Ms, p99Ms, slowestMs, silenceMs, seconds } = await timed;

  const again = load(task);
  await sleep(inTheMiddle);
  const during = await memoryOf(server);
  await again;
  const after = await memoryOf(server);

  const kibOfEach = (bytes: number) => `${(bytes / 1024 / streams).toFixed(1)} KiB`;
  const mib = (bytes: number) => `${(bytes / 1024 / 1024).toFixed(0)} MiB`;
  console.log(
    `${requests} streams at once, ${tokens} tokens each, one after ${tokenMs} ms; server on one core`,
  );
  console.table({
    "tokens/s of all": ((requests * tokens) / seconds).toFixed(0),
    "nominal time of a stream": `${((tokens * tokenMs) / 1000).toFixed(2)} s`,
    "median stream": `${(p50Ms / 1000).toFixed(2)} s`,
    "99 of 100 within": `${(p99Ms / 1000).toFixed(2)} s`,
    "slowest stream": `${(slowestMs / 1000).toFixed(2)} s`,
    "slowest / median": (slowestMs / p50Ms).toFixed(2),
    "longest silence in any stream": `${silenceMs.toFixed(0)} ms`,
    "resident before": mib(before.resident),
    "resident with all streams": mib(resident),
    "resident for each stream": kibOfEach(resident - before.resident),
    "in use for each stream, after a collection": kibOfEach(during.heap - before.heap),
    "in use when they have ended, after a collection": mib(after.heap),
    "in use before": mib(before.heap),
  });
}
