/**
 * Tokens per second and time to first token through Inkwell's HTTP interface, in turns with a
 * floor in the same run.
 *
 *   npm run bench -- engine [--model FILE] [--threads default,1,2] [--concurrent 1,4,8] \
 *     [--tokens 128] [--rounds 3]
 *
 * The floor is the bare decode loop of the library underneath (`sequence.evaluate`), as the
 * library comes, and with the thread pool of one (UV_THREADPOOL_SIZE=1) in which Inkwell runs it.
 *
 * LLAMA_SERVER=/path/to/llama-server measures that program instead of the bare loop. It is started
 * here with as many threads, sequences and tokens of context as Inkwell has. It is asked not to
 * reuse prompts: Inkwell reuses none of these, because `temperature: 0` promises the same text
 * again. With the threads `default` Inkwell chooses their number, and the floor has one per core.
 *
 * All answer prompts of the same length with the same number of tokens: an answer that ends early
 * would weigh its prompt more, so it fails the run. Ratios are medians over the rounds, each of
 * one round's own figures.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { Agent, request } from "undici";
import { freePort } from "../test/fixtures/program.ts";
import { until } from "../test/fixtures/until.ts";
import { startLlamaService } from "./llama-service.ts";
import { defaultModel, numbersOf, optionsOf } from "./options.ts";
import { medianOf } from "./servers.ts";

const root = join(import.meta.dirname, "..");

interface Settings {
  model: string;
  /** Null: Inkwell chooses, and the floor has one per core. */
  threads: number | null;
  concurrent: number;
  tokens: number;
  /** Of each prompt, as the chat template makes it; the bare loop reads as many. */
  promptTokens: number;
}

interface Measured {
  tokensPerSecond: number;
  /** Median over the requests, or null if it was not measured. */
  firstTokenMs: number | null;
}

interface MeasuredAnswers extends Measured {
  promptTokens: number;
}

/** Figures of one round: Inkwell's, and those of each floor by its name. */
export interface Round {
  inkwell: Measured;
  floors: Record<string, Measured>;
}

/** Where answers are to be had. */
interface Server {
  url: string;
  key: string;
}

/** Of Inkwell and of llama-server. */
const sequences = 8;
const contextWindow = 2048;
export const floorNames = { bare: "bare loop", poolOfOne: "bare, pool of 1", server: "llama-server" };

let prompts = 0;

/**
 * Answers that do not end by themselves: a greedy small model goes on telling. No two prompts
 * begin alike.
 */
function nextPrompt(): string {
  prompts += 1;
  // Always three digits, which are as many tokens.
  return `Chapter ${100 + (prompts % 900)}: write a very long, endless story about the sea, with many details, and do not stop early.`;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    model: defaultModel,
    threads: "1,2",
    concurrent: "1,4,8",
    tokens: "128",
    rounds: "3",
  });
  const rows: Record<string, string>[] = [];
  for (const threads of values.threads.split(",").map(threadsOf)) {
    const asked = {
      model: resolve(values.model),
      threads,
      tokens: Number(values.tokens),
      rounds: Number(values.rounds),
    };
    for await (const { settings, rounds } of measureEngine(asked, numbersOf(values.concurrent))) {
      rows.push(rowOf(settings, rounds));
      process.stderr.write(
        `${Object.entries(rows.at(-1) ?? {})
          .map(([name, figure]) => `${name} ${figure}`)
          .join(", ")}\n`,
      );
    }
  }
  console.log(
    `${resolve(values.model)}: ${values.tokens} tokens a request, median of ${values.rounds} rounds`,
  );
  console.table(rows);
}

/** Yields the rounds for each number of concurrent answers. */
export async function* measureEngine(
  { rounds: count, ...asked }: Omit<Settings, "concurrent" | "promptTokens"> & { rounds: number },
  concurrents: readonly number[],
): AsyncGenerator<{ settings: Settings; rounds: Round[] }> {
  const { model, threads } = asked;
  const { LLAMA_SERVER } = process.env;
  await using service = await startLlamaService({
    model,
    ...(threads === null ? {} : { threads }),
    parallel: sequences,
    contextWindow,
  });
  await using server = LLAMA_SERVER === undefined ? null : await startServer(LLAMA_SERVER, model, threads);
  const inkwell = { url: service.url, key: service.keys[0] ?? "" };
  for (const concurrent of concurrents) {
    const first = { ...asked, concurrent, promptTokens: 0 };
    // A first one uncounted, so that files are in memory and code is compiled.
    const { promptTokens } = await throughHttp(inkwell, { ...first, tokens: 16 });
    const settings = { ...first, promptTokens };
    if (server !== null) await assertSameModel(server, settings);
    const rounds: Round[] = [];
    while (rounds.length < count)
      rounds.push(await oneRound(inkwell, server, settings, rounds.length % 2 === 1));
    yield { settings, rounds };
  }
}

function threadsOf(text: string): number | null {
  return text === "default" ? null : Number(text);
}

async function oneRound(
  inkwell: Server,
  server: Server | null,
  settings: Settings,
  isInkwellFirst: boolean,
): Promise<Round> {
  const first = isInkwellFirst ? await throughHttp(inkwell, settings) : null;
  const floors =
    server === null
      ? {
          [floorNames.bare]: await bareLoop(settings, undefined),
          [floorNames.poolOfOne]: await bareLoop(settings, "1"),
        }
      : { [floorNames.server]: await throughHttp(server, settings) };
  return { floors, inkwell: first ?? (await throughHttp(inkwell, settings)) };
}

function rowOf({ threads, concurrent }: Settings, rounds: readonly Round[]): Record<string, string> {
  const median = (of: (round: Round) => number | null | undefined) =>
    medianOf(rounds.map((round) => of(round) ?? Number.NaN));
  const row: Record<string, string> = {
    threads: `${threads ?? "default"}`,
    concurrent: `${concurrent}`,
    "Inkwell tok/s": median(({ inkwell }) => inkwell.tokensPerSecond).toFixed(1),
    "first token ms": median(({ inkwell }) => inkwell.firstTokenMs).toFixed(0),
  };
  for (const name of Object.keys(rounds[0]?.floors ?? {})) {
    const floorOf = ({ floors }: Round) => floors[name];
    row[`${name} tok/s`] = median((round) => floorOf(round)?.tokensPerSecond).toFixed(1);
    row[`ratio to ${name}`] = median((round) => ratio(round.inkwell, floorOf(round))).toFixed(2);
    if (name === floorNames.server)
      row["its first token ms"] = median((round) => floorOf(round)?.firstTokenMs).toFixed(0);
  }
  return row;
}

function ratio(one: Measured, other: Measured | undefined): number {
  return one.tokensPerSecond / (other?.tokensPerSecond ?? Number.NaN);
}

async function startServer(
  binary: string,
  model: string,
  threads: number | null,
): Promise<Server & AsyncDisposable> {
  const port = await freePort();
  const count = threads ?? availableParallelism();
  const flags = `--host 127.0.0.1 --port ${port} --threads ${count} --threads-batch ${count} -c ${sequences * contextWindow} -np ${sequences} --cache-ram 0`;
  const child = spawn(binary, ["-m", model, ...flags.split(" ")], { stdio: "ignore" });
  const closed = once(child, "close");
  const url = `http://127.0.0.1:${port}`;
  const ended = closed.then(([code]) => {
    throw new Error(`llama-server ended with ${code}`);
  });
  const isUp = until("llama-server is up", () =>
    fetch(`${url}/health`).then(
      ({ status }) => status === 200,
      () => false,
    ),
  );
  await Promise.race([isUp, ended]);
  // From here on it ends because `stop` kills it, or a request fails.
  ended.catch(() => {});
  const stop = async () => {
    child.kill("SIGKILL");
    await closed;
  };
  return { url, key: "none", [Symbol.asyncDispose]: stop };
}

async function assertSameModel(server: Server, settings: Settings): Promise<void> {
  const { promptTokens } = await throughHttp(server, { ...settings, tokens: 16 });
  if (promptTokens !== settings.promptTokens)
    throw new Error(
      `llama-server counts ${promptTokens} tokens for ${settings.promptTokens}: it has another model or template`,
    );
}

/** The loop in a process of its own, which prints its tokens per second. */
async function bareLoop(settings: Settings, poolSize: string | undefined): Promise<Measured> {
  const threads = settings.threads ?? availableParallelism();
  const env = { ...process.env };
  delete env.UV_THREADPOOL_SIZE;
  if (poolSize !== undefined) env.UV_THREADPOOL_SIZE = poolSize;
  const child = spawn(
    process.execPath,
    [join(root, "bench", "bare-loop.ts"), JSON.stringify({ ...settings, threads })],
    {
      env,
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const output = await textOf(child);
  const tokensPerSecond = Number(output.trim());
  if (!(tokensPerSecond > 0)) throw new Error(`the bare loop printed ${JSON.stringify(output)}`);
  return { tokensPerSecond, firstTokenMs: null };
}

async function textOf(child: ChildProcess): Promise<string> {
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  const code = await new Promise((resolve) => child.on("close", resolve));
  if (code !== 0) throw new Error(`a benchmark process ended with ${code}`);
  return text;
}

const agent = new Agent({ connections: 64 });

async function throughHttp(server: Server, { concurrent, tokens }: Settings): Promise<MeasuredAnswers> {
  const startedMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: concurrent }, () => oneAnswer(server, nextPrompt(), tokens)),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  const made = answers.reduce((sum, answer) => sum + answer.tokens, 0);
  return {
    tokensPerSecond: made / seconds,
    firstTokenMs: medianOf(answers.map((answer) => answer.firstTokenMs)),
    promptTokens: medianOf(answers.map((answer) => answer.promptTokens)),
  };
}

async function oneAnswer(
  { url, key }: Server,
  content: string,
  tokens: number,
): Promise<{ tokens: number; promptTokens: number; firstTokenMs: number }> {
  const startedMs = performance.now();
  const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
    method: "POST",
    dispatcher: agent,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "bench",
      stream: true,
      stream_options: { include_usage: true },
      temperature: 0,
      max_tokens: tokens,
      // Of llama-server; Inkwell knows no such parameter.
      cache_prompt: false,
      messages: [{ role: "user", content }],
    }),
  });
  if (statusCode !== 200) throw new Error(`${statusCode}: ${await body.text()}`);
  let firstTokenMs = Number.NaN;
  let tail = "";
  for await (const chunk of body.setEncoding("utf8")) {
    const text: string = chunk;
    if (Number.isNaN(firstTokenMs) && /"content":"[^"]/.test(text))
      firstTokenMs = performance.now() - startedMs;
    tail = (tail + text).slice(-2000);
  }
  const completion = /"completion_tokens":(\d+)/.exec(tail)?.[1];
  const prompt = /"prompt_tokens":(\d+)/.exec(tail)?.[1];
  if (completion === undefined || prompt === undefined) throw new Error("the stream ended without its usage");
  if (Number(completion) !== tokens)
    throw new Error(`an answer ended after ${completion} of ${tokens} tokens: its prompt would weigh more`);
  return { tokens: Number(completion), promptTokens: Number(prompt), firstTokenMs };
}
