/**
 * Tokens per second and time to first token through Inkwell's HTTP interface, against the bare
 * decode loop of the library underneath (`sequence.evaluate`) on the same file, in the same run,
 * in turns.
 *
 *   npm run bench -- engine [--model FILE] [--threads 1,2] [--concurrent 1,4,8] [--tokens 128] \
 *     [--rounds 3]
 *
 * The bare loop runs twice: as the library comes, and with the thread pool of one
 * (UV_THREADPOOL_SIZE=1) in which Inkwell runs it, which is the floor of the ratio. All answer
 * prompts of the same length with the same number of tokens: an answer that ends early would weigh
 * its prompt more, so it fails the run. Ratios are medians over the rounds, each of one round's
 * own figures.
 *
 * LLAMA_SERVER_URL names a llama-server to be measured beside it, one number of threads at a time.
 * Started alike, it is
 *
 *   llama-server -m FILE --threads N --threads-batch N -c 16384 -np 8 --cache-ram 0
 *
 * It is asked not to reuse prompts: Inkwell reuses none of these, because `temperature: 0`
 * promises the same text again.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { join, resolve } from "node:path";
import { Agent, request } from "undici";
import { startLlamaService } from "./llama-service.ts";
import { defaultModel, numbersOf, optionsOf } from "./options.ts";
import { medianOf } from "./servers.ts";

const root = join(import.meta.dirname, "..");

interface Settings {
  model: string;
  threads: number;
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

interface Round {
  bare: Measured;
  floor: Measured;
  inkwell: MeasuredAnswers;
  server: MeasuredAnswers | null;
}

/** Where answers are to be had. */
interface Server {
  url: string;
  key: string;
}

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
  const tokens = Number(values.tokens);
  const llamaServer = process.env.LLAMA_SERVER_URL;
  if (llamaServer !== undefined && numbersOf(values.threads).length > 1)
    throw new Error(
      "llama-server has one number of threads: give --threads N, the number it was started with",
    );
  const rows: Record<string, string>[] = [];
  for (const threads of numbersOf(values.threads)) {
    await using service = await startLlamaService({
      model: resolve(values.model),
      threads,
      parallel: 8,
      contextWindow: 2048,
    });
    const inkwell = { url: service.url, key: service.keys[0] ?? "" };
    for (const concurrent of numbersOf(values.concurrent)) {
      // A first one uncounted, so that files are in memory and code is compiled.
      const asked = { model: values.model, threads, concurrent, tokens, promptTokens: 0 };
      const warm = await throughHttp(inkwell, { ...asked, tokens: 16 });
      const settings = { ...asked, promptTokens: warm.promptTokens };
      if (llamaServer !== undefined) {
        const same = await throughHttp(serverAt(llamaServer), { ...settings, tokens: 16 });
        if (same.promptTokens !== warm.promptTokens)
          throw new Error(
            `llama-server counts ${same.promptTokens} tokens for ${warm.promptTokens}: not one file`,
          );
      }
      const rounds: Round[] = [];
      for (let round = 0; round < Number(values.rounds); round += 1) {
        rounds.push({
          bare: await bareLoop(settings, undefined),
          floor: await bareLoop(settings, "1"),
          inkwell: await throughHttp(inkwell, settings),
          server: llamaServer === undefined ? null : await throughHttp(serverAt(llamaServer), settings),
        });
      }
      const median = (of: (round: Round) => number | null | undefined) =>
        medianOf(rounds.map((round) => of(round) ?? Number.NaN));
      const row: Record<string, string> = {
        threads: `${threads}`,
        concurrent: `${concurrent}`,
        "bare loop tok/s": median(({ bare }) => bare.tokensPerSecond).toFixed(1),
        "bare, pool of 1 tok/s": median(({ floor }) => floor.tokensPerSecond).toFixed(1),
        "Inkwell tok/s": median(({ inkwell }) => inkwell.tokensPerSecond).toFixed(1),
        "ratio to floor": median(({ inkwell, floor }) => ratio(inkwell, floor)).toFixed(2),
        "first token ms": median(({ inkwell }) => inkwell.firstTokenMs).toFixed(0),
      };
      if (llamaServer !== undefined) {
        row["llama-server tok/s"] = median(({ server }) => server?.tokensPerSecond).toFixed(1);
        row["ratio to it"] = median(({ inkwell, server }) => server && ratio(inkwell, server)).toFixed(2);
        row["its first token ms"] = median(({ server }) => server?.firstTokenMs).toFixed(0);
      }
      rows.push(row);
      process.stderr.write(
        `${Object.entries(row)
          .map(([name, figure]) => `${name} ${figure}`)
          .join(", ")}\n`,
      );
    }
  }
  console.log(`${values.model}: ${tokens} tokens a request, median of ${values.rounds} rounds`);
  console.table(rows);
}

function serverAt(address: string): Server {
  return { url: address.replace(/\/+$/, ""), key: "none" };
}

function ratio(one: Measured, other: Measured): number {
  return one.tokensPerSecond / other.tokensPerSecond;
}

/** The loop in a process of its own, which prints its tokens per second. */
async function bareLoop(settings: Settings, poolSize: string | undefined): Promise<Measured> {
  const env = { ...process.env };
  delete env.UV_THREADPOOL_SIZE;
  if (poolSize !== undefined) env.UV_THREADPOOL_SIZE = poolSize;
  const child = spawn(process.execPath, [join(root, "bench", "bare-loop.ts"), JSON.stringify(settings)], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
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
