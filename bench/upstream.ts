/**
 * Requests and tokens per second through the whole HTTP path with the real engine for upstreams and every request
 * metered on disk (hold, settlement, receipt), before nginx, which answers out of files. The floor in the same run, in
 * turns, before the same nginx: a bare Fastify handler that fetches through undici, reads and writes the JSON of whole
 * answers and passes the bytes of streams through; it checks, meters and logs nothing.
 *
 *   npm run bench -- gateway --upstream [--clients 32] [--seconds 2] [--rounds 3] [--warm 3] [--only short,burst,paced]
 *
 * The answers (bench/nginx.ts): `short` is of one token; `burst` of 64 that come in one piece; `paced` of 64, each in
 * a write of its own, as a model makes them, but as fast as they can be taken. Inkwell always has its upstreams
 * stream, so for whole answers too it reads all events where the floor reads one object.
 */
import { parseArgs } from "node:util";
import { OperatorError } from "../src/errors.ts";
import { startNginx, type UpstreamAnswer, upstreamAnswers } from "./nginx.ts";
import { cores, type Measured, measure, type Server, startServer, summaryOf } from "./servers.ts";

const names = ["inkwell", "proxy"] as const;
type Name = (typeof names)[number];
const titles = { inkwell: "Inkwell", proxy: "bare Fastify and undici" };

export async function run(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      clients: { type: "string", default: "32" },
      seconds: { type: "string", default: "2" },
      rounds: { type: "string", default: "3" },
      warm: { type: "string", default: "3" },
      only: { type: "string", default: upstreamAnswers.map(({ id }) => id).join(",") },
    },
  });
  const clients = Number(values.clients);
  const wanted = values.only.split(",");
  const nginx = await startNginx(cores.clients).catch((error: unknown) => {
    if (!(error instanceof OperatorError)) throw error;
    console.error(error.message);
    process.exit(1);
  });
  await using _ = nginx;
  await using inkwell = await startServer({ which: "inkwell", clients, upstream: nginx.origin });
  await using proxy = await startServer({ which: "proxy", clients, upstream: nginx.origin });
  const servers: Record<Name, Server> = { inkwell, proxy };
  const table: Record<string, string>[] = [];
  for (const answer of upstreamAnswers.filter(({ id }) => wanted.includes(id))) {
    // A write for each event makes no difference to a whole answer, and a stream of one token says little.
    for (const stream of [false, true].filter((stream) => (stream ? answer.tokens > 1 : !answer.isByEvent))) {
      const body = {
        model: answer.id,
        messages: [{ role: "user", content: "Count from one to ten in words." }],
        max_tokens: answer.tokens,
        stream,
      };
      for (const name of names) {
        await checkAnswer(servers[name], body, answer);
        // Uncounted, so that code is compiled and files are in memory.
        await measure(servers[name], body, Number(values.warm));
      }
      const many: Rounds = { inkwell: [], proxy: [] };
      const one: Rounds = { inkwell: [], proxy: [] };
      for (let round = 0; round < Number(values.rounds); round += 1) {
        for (const name of names) {
          many[name].push(await measure(servers[name], body, Number(values.seconds)));
          one[name].push(await measure(servers[name], body, Number(values.seconds) / 4, 1));
        }
      }
      table.push(...linesOf(answer, stream, many, one));
    }
  }
  console.log(
    `${clients} clients, server on one core, nginx and clients on the other; median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(table);
}

type Rounds = Record<Name, Measured[]>;

/** That all of it arrives, so that nothing is measured which only seems to work. */
async function checkAnswer(
  { port, keys }: Server,
  body: { stream: boolean },
  { id, tokens }: UpstreamAnswer,
): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${keys[0]}` },
    body: JSON.stringify(body),
  });
  const said = await response.text();
  const count = body.stream
    ? said.match(/"content":" /g)?.length
    : Number(/"completion_tokens":(\d+)/.exec(said)?.[1]);
  if (count !== tokens) throw new Error(`the answer "${id}" should have ${tokens} tokens: ${said}`);
}

function linesOf({ id, tokens }: UpstreamAnswer, stream: boolean, many: Rounds, one: Rounds) {
  const floor = summaryOf(many.proxy);
  const aloneFloor = summaryOf(one.proxy);
  return names.map((name) => {
    const { rate, cpu, busy, p50, p99, spread } = summaryOf(many[name]);
    const alone = summaryOf(one[name]);
    return {
      answers: `${stream ? "streamed" : "whole"}, ${id}`,
      server: titles[name],
      "requests/s": rate.toFixed(0),
      "tokens/s": (rate * tokens).toFixed(0),
      "of floor": (rate / floor.rate).toFixed(2),
      "p50 ms": p50.toFixed(2),
      "p99 ms": p99.toFixed(2),
      "adds ms, 1 client": (alone.p50 - aloneFloor.p50).toFixed(2),
      "CPU µs/request": cpu.toFixed(0),
      "CPU of floor": (floor.cpu / cpu).toFixed(2),
      "core used": `${(busy * 100).toFixed(0)} %`,
      spread: `${(spread * 100).toFixed(0)} %`,
    };
  });
}
