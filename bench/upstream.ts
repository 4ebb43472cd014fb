/**
 * Requests and tokens per second through the whole HTTP path with the real engine for upstreams
 * and every request metered on disk (hold, settlement, receipt), in front of a mock upstream. The
 * floor runs in turns with it, in front of the same upstream. It is a bare Fastify handler that
 * fetches through undici, parses and encodes the JSON of whole answers, and passes on the bytes of
 * streams. The floor checks, meters and logs nothing.
 *
 * npm run bench -- gateway --upstream [--clients 32] [--seconds 2] [--rounds 3] [--warm 15]
 *     [--only short,burst,pieces] [--stream false,true] [--stores sqlite,postgres]
 *
 * The answers (bench/upstream-answers.ts): `short` has one token. `burst` has 64 tokens in one
 * piece. `pieces` has 64 tokens, and each event arrives by itself. Inkwell asks its upstreams to
 * stream whole answers too, so it reads 67 events, and the floor reads one object. The server has
 * one core. Clients, the upstream and PostgreSQL have the others.
 */

import { start as startPostgres } from "../test/fixtures/postgres.ts";
import { optionsOf } from "./options.ts";
import { type Measured, measure, type Server, startServer, summaryOf } from "./servers.ts";
import { type UpstreamAnswer, upstreamAnswers } from "./upstream-answers.ts";

const names = ["sqlite", "postgres", "proxy"] as const;
type Name = (typeof names)[number];
const titles = { sqlite: "Inkwell, SQLite", postgres: "Inkwell, PostgreSQL", proxy: "Fastify and undici" };

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    clients: "32",
    seconds: "2",
    rounds: "3",
    warm: "15",
    only: upstreamAnswers.map(({ id }) => id).join(","),
    stream: "false,true",
    stores: "sqlite,postgres",
  });
  const clients = Number(values.clients);
  const answers = values.only.split(",");
  const stores = values.stores.split(",");
  const wanted = names.filter((name) => name === "proxy" || stores.includes(name));
  await using mock = await startServer({ which: "upstream", clients });
  const upstream = `http://127.0.0.1:${mock.port}`;
  await using started = new AsyncDisposableStack();
  const servers = new Map<Name, Server>();
  for (const name of wanted) {
    const which = name === "proxy" ? "proxy" : "inkwell";
    const database = name === "postgres" ? { database: await emptyDatabase() } : {};
    const server = await startServer({ which, clients, upstream, ...database });
    servers.set(name, started.use(server));
  }
  const table: Record<string, string>[] = [];
  for (const answer of upstreamAnswers.filter(({ id }) => answers.includes(id))) {
    for (const stream of values.stream.split(",").map((each) => each === "true")) {
      // A stream of one token says little.
      if (stream && answer.tokens === 1) continue;
      const body = {
        model: answer.id,
        messages: [{ role: "user", content: "Count from one to ten in words." }],
        max_tokens: answer.tokens,
        stream,
      };
      for (const server of servers.values()) {
        await checkAnswer(server, body, answer);
        // Uncounted. V8 compiles code for some 15 s under this load.
        await measure(server, body, Number(values.warm));
      }
      const rounds = new Map<Name, Rounds>(wanted.map((name) => [name, { many: [], one: [] }]));
      for (let round = 0; round < Number(values.rounds); round += 1) {
        for (const [name, server] of servers) {
          rounds.get(name)?.many.push(await measure(server, body, Number(values.seconds)));
          rounds.get(name)?.one.push(await measure(server, body, Number(values.seconds) / 4, 1));
        }
      }
      table.push(...linesOf(answer, stream, rounds));
    }
  }
  console.log(
    `${clients} clients, server on one core, the rest on the others; median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(table);
}

interface Rounds {
  many: Measured[];
  /** With one client. */
  one: Measured[];
}

/** Returns the URL of a database that survives a power failure, as in production. */
async function emptyDatabase(): Promise<string> {
  const server = await startPostgres({ durable: true });
  return server.url(await server.create());
}

/** Throws unless the whole answer arrives, so that no failure is measured. */
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
  const received = await response.text();
  const count = body.stream
    ? received.match(/"content":" /g)?.length
    : Number(/"completion_tokens":(\d+)/.exec(received)?.[1]);
  if (count !== tokens) throw new Error(`the answer "${id}" should have ${tokens} tokens: ${received}`);
}

function linesOf({ id, tokens }: UpstreamAnswer, stream: boolean, rounds: ReadonlyMap<Name, Rounds>) {
  const floor = summaryOf(rounds.get("proxy")?.many ?? []);
  return [...rounds].map(([name, { many, one }]) => {
    const { rate, cpu, busy, p50, p99, spread } = summaryOf(many);
    const alone = summaryOf(one);
    return {
      answers: `${stream ? "streamed" : "whole"}, ${id}`,
      server: titles[name],
      "requests/s": rate.toFixed(0),
      "tokens/s": (rate * tokens).toFixed(0),
      "of floor": (rate / floor.rate).toFixed(3),
      "p50 ms": p50.toFixed(2),
      "p99 ms": p99.toFixed(2),
      "p50 ms, 1 client": alone.p50.toFixed(2),
      "CPU µs/request": cpu.toFixed(0),
      "core used": `${(busy * 100).toFixed(0)} %`,
      spread: `${(spread * 100).toFixed(0)} %`,
    };
  });
}
