/**
 * Whether the service stays as it is under hours of mixed load at a high rate: whole and streamed
 * answers, and beside them streams that are left, refusals, balances and lists of models. Resident
 * memory must not grow, and every answer must be on the books, once.
 *
 *   npm run bench -- mixed [--minutes 120] [--step 60] [--clients 32] [--database postgres]
 *
 * Prints a line for each step of so many seconds. Memory is the median of a look a second, of all
 * processes, in millions of bytes. Then come the median of the last quarter of the steps, of that
 * of the second quarter; what the clients got and what their accounts paid; and the audit. The
 * service has one core, with its database if that is SQLite.
 */
import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import { start } from "../test/fixtures/postgres.ts";
import { entry } from "../test/fixtures/program.ts";
import { optionsOf } from "./options.ts";
import { residentBytes } from "./processes.ts";
import { asked } from "./release/http.ts";
import { startInkwell } from "./release/measure.ts";
import { load, medianOf, startServer } from "./servers.ts";
import type { Service } from "./service.ts";
import { upstreamAnswers } from "./upstream-answers.ts";

/** The mock upstream counts so many in the prompt. A token costs a micro-credit. */
const promptTokens = 18;
/** Between two requests that are not answered in full. */
const pauseMs = 20;

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, { minutes: "120", step: "60", clients: "32", database: "sqlite" });
  const [clients, seconds] = [Number(values.clients), Number(values.step)];
  const steps = Math.max(1, Math.round((Number(values.minutes) * 60) / seconds));
  const answer = upstreamAnswers.find(({ id }) => id === "pieces");
  if (answer === undefined) throw new Error("the mock upstream sends pieces");
  const server = values.database === "postgres" ? await start({ durable: true }) : null;
  const database = server?.url(await server.create());
  await using mock = await startServer({ which: "upstream", clients: 0, port: 0 });
  const upstream = `http://127.0.0.1:${mock.port}`;
  // The last account is that of the requests beside.
  await using service = await startInkwell({ upstream, clients }, { accounts: clients + 1, database });
  const half = Math.ceil(clients / 2);
  const sides = [
    { keys: service.keys.slice(0, half), body: asked({ answer }, false).body },
    { keys: service.keys.slice(half, clients), body: asked({ answer }, true).body },
  ].filter(({ keys }) => keys.length > 0);
  let answers = 0;
  const memory: number[] = [];
  for (let step = 1; step <= steps; step += 1) {
    const seenMb: number[] = [];
    const look = () => seenMb.push(residentBytes(service.process.pid ?? Number.NaN) / 1e6);
    const timer = setInterval(look, 1000);
    const [beside, ...results] = await Promise.all([
      requestsBeside(service, asked({ answer }, true).body, seconds),
      ...sides.map((side) => load({ ...side, port: service.port, seconds })),
    ]);
    clearInterval(timer);
    look();
    const requests = results.reduce((sum, result) => sum + result.requests, 0);
    answers += requests;
    memory.push(medianOf(seenMb));
    const p50s = results.map(({ p50Ms }) => p50Ms.toFixed(1)).join(" and ");
    console.log(
      `step ${step} of ${steps}: ${(requests / seconds).toFixed(0)} answers/s, p50 ${p50s} ms, ${beside} requests beside, ${medianOf(seenMb).toFixed(0)} MB`,
    );
  }
  const quarter = (n: number) => medianOf(memory.slice(((n - 1) * steps) / 4, Math.ceil((n * steps) / 4)));
  console.log(`memory, the last quarter of the second: ${(quarter(4) / quarter(2)).toFixed(3)}`);
  const micro = answers * (promptTokens + answer.tokens);
  const [requests, paidMicro] = booksOf(service);
  console.log(`clients got ${answers} answers for ${micro} micro-credits`);
  console.log(`on the books are ${requests} for ${paidMicro}`);
  execFileSync(process.execPath, [entry, "audit"], { cwd: service.folder, stdio: "pipe" });
  console.log("the audit finds nothing");
  if (requests !== answers || paidMicro !== micro) throw new Error("the books differ from the answers");
}

/**
 * Streams that are left after their first bytes, refusals, balances and lists of models, one after
 * the other. Returns their number. Throws if a status is another than expected.
 */
async function requestsBeside(service: Service, body: object, seconds: number): Promise<number> {
  const key = service.keys.at(-1);
  const url = `http://127.0.0.1:${service.port}/v1`;
  const send = async (status: number, path: string, content?: string, authorization = `Bearer ${key}`) => {
    const headers = { authorization, "content-type": "application/json" };
    const method = content === undefined ? "GET" : "POST";
    const answer = await request(url + path, {
      method,
      headers,
      ...(content === undefined ? {} : { body: content }),
    });
    if (answer.statusCode !== status) throw new Error(`${path}: ${answer.statusCode} in place of ${status}`);
    return answer.body;
  };
  const chat = "/chat/completions";
  const kinds = [
    async () => {
      const stream = await send(200, chat, JSON.stringify(body));
      for await (const _chunk of stream) break;
    },
    async () => (await send(200, "/balance")).dump(),
    async () => (await send(200, "/models")).dump(),
    async () => (await send(400, chat, "{")).dump(),
    async () => (await send(404, chat, JSON.stringify({ ...body, model: "none" }))).dump(),
    async () => (await send(401, "/balance", undefined, "Bearer unknown")).dump(),
  ];
  const endsMs = performance.now() + seconds * 1000;
  let sent = 0;
  for (; performance.now() < endsMs; sent += 1) {
    await kinds[sent % kinds.length]?.();
    await sleep(pauseMs);
  }
  return sent;
}

interface Sums {
  account: string;
  requests: number;
  cost_micro: number;
  shortfall_micro: number;
}

/** Requests and micro-credits on the books, of all accounts but the last. */
function booksOf({ folder, keys }: Service): [requests: number, micro: number] {
  const args = [entry, "usage", "--by", "account", "--json"];
  const { data }: { data: Sums[] } = JSON.parse(
    execFileSync(process.execPath, args, { cwd: folder, encoding: "utf8", stdio: "pipe" }),
  );
  const rows = data.filter(({ account }) => account !== `account-${keys.length - 1}`);
  const sum = (of: (row: Sums) => number) => rows.reduce((total, row) => total + of(row), 0);
  return [sum((row) => row.requests), sum((row) => row.cost_micro - row.shortfall_micro)];
}
