/**
 * Requests per second through the whole HTTP path with a scripted engine of one token: keys, hold,
 * settlement and receipt on disk, log and metrics. Two floors are measured in turns in the same
 * run, and meter, check and log nothing. `bare` is a Fastify handler that responds with the same
 * bytes. `proxy` fetches these bytes from another process through undici, as a router does. The
 * server has one core for all its threads; clients and upstream have the others.
 *
 *   npm run bench -- gateway [--clients 32] [--seconds 3] [--rounds 5] [--warm 6] \
 *     [--stream false,true]
 *
 * Before an upstream, `npm run bench -- release --only answers` measures the whole service.
 */
import { optionsOf } from "./options.ts";
import { type Measured, measure, startServer, summaryOf } from "./servers.ts";

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    clients: "32",
    seconds: "3",
    rounds: "5",
    warm: "6",
    stream: "false,true",
  });
  const clients = Number(values.clients);
  await using inkwell = await startServer({ which: "inkwell", clients });
  await using bare = await startServer({ which: "bare", clients });
  await using upstream = await startServer({ which: "upstream", clients });
  await using proxy = await startServer({
    which: "proxy",
    clients,
    upstream: `http://127.0.0.1:${upstream.port}`,
  });
  const servers = { inkwell, bare, proxy };
  const table: Record<string, string>[] = [];
  for (const stream of values.stream.split(",")) {
    const body = {
      model: "short",
      messages: [{ role: "user", content: "Count from one to ten in words." }],
      max_tokens: 1,
      stream: stream === "true",
    };
    const measured: Rounds = { inkwell: [], bare: [], proxy: [] };
    // A first one uncounted, so that code is compiled and files are in memory.
    for (const name of names) await measure(servers[name], body, Number(values.warm));
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const name of names)
        measured[name].push(await measure(servers[name], body, Number(values.seconds)));
    }
    table.push(...linesOf(stream === "true", measured));
  }
  console.log(
    `${values.clients} clients, one core, median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(table);
}

const names = ["inkwell", "bare", "proxy"] as const;
type Rounds = Record<(typeof names)[number], Measured[]>;

const titles = { inkwell: "Inkwell", bare: "bare Fastify", proxy: "bare Fastify and undici" };

function linesOf(stream: boolean, rounds: Rounds) {
  const inkwell = summaryOf(rounds.inkwell);
  return names.map((name) => {
    const { rate, cpu, p50, p99, spread } = summaryOf(rounds[name]);
    return {
      answers: stream ? "streamed" : "whole",
      server: titles[name],
      "requests/s": rate.toFixed(0),
      "Inkwell / this": (inkwell.rate / rate).toFixed(2),
      "p50 ms": p50.toFixed(2),
      "Inkwell adds ms": (inkwell.p50 - p50).toFixed(2),
      "p99 ms": p99.toFixed(2),
      "CPU µs/request": cpu.toFixed(0),
      spread: `${(spread * 100).toFixed(0)} %`,
    };
  });
}
