/**
 * `npm run clients -- [NAME...] [--folder DIR]`: installs clients from package registries, tries
 * the same twelve things with each of them before a scripted model server, and prints a table.
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { messageOf } from "../src/errors.ts";
import { newFolder, startProgram } from "../test/fixtures/program.ts";
import { until } from "../test/fixtures/until.ts";
import { startUpstream } from "../test/fixtures/upstream.ts";
import { type Client, clients, prepare } from "./clients/list.ts";
import {
  type Answer,
  isText,
  type Job,
  type LogLine,
  promptOf,
  say,
  type Thing,
  things,
} from "./clients/things.ts";
import { namesAndFolder } from "./options.ts";
import { operatorOf } from "./servers/client.ts";

const usage = `Usage: npm run clients -- [NAME...] [--folder DIR]
  NAME          some of ${clients.map(({ name }) => name).join(", ")}; default: all
  --folder DIR  keeps the clients and what they printed (default: a folder for temporary files)`;
const operatorToken = "operator-token-0123456789";
const credits = 1_000_000;
/** Longer than all things together take. */
const clientMs = 180_000;

const plan = (base: number, limits: object = {}) => ({
  base: { credits: base, every: "P1M" },
  overage: { credits: 0, every: "P1M" },
  limits,
  models: ["*"],
});
const plans = { starter: plan(credits), empty: plan(0), single: plan(credits, { concurrent: 1 }) };

/** Hands bytes from the service to the client in pieces of five, a millisecond apart. */
async function startSplitter(port: number) {
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true }, (client) => {
    const service = connect(port, "127.0.0.1");
    client.pipe(service);
    void (async () => {
      for await (const bytes of service) {
        for (let from = 0; from < bytes.length; from += 5) {
          client.write(bytes.subarray(from, from + 5));
          await sleep(1);
        }
      }
      client.end();
    })().catch(() => client.destroy());
    for (const socket of [client, service])
      sockets.add(socket.on("error", () => socket.destroy()).on("close", () => service.destroy()));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return {
    port: address.port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Runs a client's program. Returns its answers to each thing, and how it ended if not well. */
async function runClient(client: Client, folder: string, jobs: readonly Job[]) {
  const [program = "", ...args] = client.command(folder);
  const { output, problem } = await new Promise<{ output: string; problem: string }>((resolve) => {
    const child = execFile(
      program,
      args,
      { cwd: folder, timeout: clientMs, maxBuffer: 2 ** 26 },
      (error, stdout, stderr) =>
        resolve({ output: stdout, problem: error === null ? "" : `${error.message} ${stderr}`.slice(-2000) }),
    );
    child.stdin?.on("error", () => {}).end(JSON.stringify(jobs));
  });
  await writeFile(path.join(folder, "answers.jsonl"), output);
  const answers = new Map<string, Answer[]>();
  for (const [line] of output.matchAll(/^\{.*"answers":.*$/gm)) {
    const result: { name: string; answers: Answer[] } = JSON.parse(line);
    answers.set(result.name, [...(answers.get(result.name) ?? []), ...result.answers]);
  }
  return { answers, problem };
}

/** Tries all things with a client. Returns the cell of each. */
async function tryClient(client: Client, folder: string): Promise<Map<string, string>> {
  await using upstream = await startUpstream();
  await using home = await newFolder();
  const model = {
    engine: "upstream",
    url: upstream.url,
    model: "any",
    price: { prompt: 1_000_000, completion: 1_000_000 },
  };
  const models = { big: model, narrow: { ...model, parallel: 1 } };
  // JSON is YAML.
  await writeFile(path.join(home.path, "inkwell.yaml"), JSON.stringify({ plans, models }));
  await using inkwell = startProgram(home.path, {
    env: { INKWELL_OPERATOR_TOKEN: operatorToken },
  });
  const stop = () => inkwell.process.kill();
  process.once("exit", stop);
  const { url, operatorUrl } = await inkwell.up();
  await using splitter = await startSplitter(Number(new URL(url).port));
  const admin = operatorOf(operatorUrl, operatorToken);

  const accountOf = ({ name }: Thing) => name.replace(" ", "-");
  const linesOf = (thing: Thing) =>
    [...inkwell.stderr.matchAll(/^\{.*"path":"\/v1\/chat\/completions".*$/gm)]
      .map(([line]): LogLine => JSON.parse(line))
      .filter(({ account }) => account === accountOf(thing));
  upstream.play = (call) => {
    const [, name] = /^(.+) \d+$/.exec(promptOf(call)) ?? [];
    const thing = things.find((each) => each.name === name);
    const before = upstream.calls.indexOf(call);
    const earlier = upstream.calls.slice(0, before).filter((each) => promptOf(each).startsWith(`${name} `));
    return thing?.play?.(call, earlier.length, () => linesOf(thing)) ?? say(call);
  };

  const jobs: Job[] = [];
  const keys = new Map<string, string>();
  const tried = things.filter(({ name }) => client.only?.includes(name) ?? true);
  for (const thing of tried) {
    const account = accountOf(thing);
    await admin("POST", "/admin/accounts", { id: account, plan: thing.plan ?? "starter" });
    const { key } = await admin("POST", `/admin/accounts/${account}/keys`, { operation_id: account });
    keys.set(thing.name, String(key));
    const { name, jobs: changes = [{}] } = thing;
    const base = thing.isSplit ? `http://127.0.0.1:${splitter.port}/v1` : `${url}/v1`;
    const job = { name, model: "big", url: base, key: String(key), stream: true, times: 1, leave_after: 0 };
    for (const change of changes) jobs.push({ ...job, ...change });
  }
  const { answers, problem } = await runClient(client, folder, jobs);
  // A client that left may be gone before its request is settled.
  await until("all requests have ended", async () => {
    const { data } = await admin("GET", "/admin/requests");
    return Array.isArray(data) && data.length === 0;
  });
  const cells = new Map<string, string>();
  for (const thing of tried) {
    const { name } = thing;
    const found = answers.get(name);
    const known = client.known?.[name];
    let wrong: string | null = `the program ended before it: ${problem}`;
    if (found !== undefined) {
      const balance = await fetch(`${url}/v1/balance`, {
        headers: { authorization: `Bearer ${keys.get(name)}` },
      });
      const { balances } = (await balance.json()) as { balances: { total: { credits: number } } };
      const spent = plans[thing.plan ?? "starter"].base.credits - balances.total.credits;
      const { check = ({ answers }) => isText(answers) } = thing;
      wrong = check({ answers: found, lines: linesOf(thing), spent });
    }
    if (wrong === null) cells.set(name, known === undefined ? "ok" : `FAILED works, in spite of: ${known}`);
    else cells.set(name, known === undefined ? `FAILED ${wrong}` : `- ${known}`);
  }
  process.off("exit", stop);
  await writeFile(path.join(folder, "inkwell.log"), `${inkwell.stdout}${inkwell.stderr}`);
  return cells;
}

function printRow(cells: readonly string[]): void {
  console.log(`| ${cells.join(" | ")} |`);
}

const known = clients.map(({ name }) => name);
const { folder: cache, isNamed, names } = namesAndFolder(usage, known, "inkwell-clients");
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
let isRight = true;
const reasons: string[] = [];
printRow(["client", ...things.map(({ name }) => name)]);
printRow(["---", ...things.map(() => "---")]);
for (const client of clients) {
  if (!names.includes(client.name)) continue;
  const name = `${client.name} ${client.version}`;
  let folder: string;
  try {
    folder = await prepare(client, cache);
  } catch (error) {
    printRow([name, ...things.map(() => "skipped")]);
    reasons.push(`${name} is not installed: ${messageOf(error).slice(-500)}`);
    // A client that was asked for by its name must run.
    if (isNamed) isRight = false;
    continue;
  }
  const cells = await tryClient(client, folder);
  // A thing that was not tried has an empty cell.
  printRow([name, ...things.map((thing) => cells.get(thing.name)?.split(" ", 1)[0] ?? "")]);
  for (const [thing, cell] of cells) if (cell !== "ok") reasons.push(`${name}, ${thing}: ${cell}`);
  if ([...cells.values()].some((cell) => cell.startsWith("FAILED"))) isRight = false;
}
for (const reason of reasons) console.log(reason);
process.exit(isRight ? 0 : 1);
