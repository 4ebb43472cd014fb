/**
 * Latency that the refused requests of one key cost its neighbours. A key with one credit and one
 * request a minute sends bodies of the largest size over some connections, as fast as it can.
 * Another account asks for one token at a time. The floor is the neighbour alone.
 *
 *   npm run bench -- refusals [--seconds 5] [--connections 6]
 */

import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { miniature, newFolder, startProgram } from "../test/fixtures/program.ts";
import { optionsOf } from "./options.ts";
import { medianOf } from "./servers.ts";

// The environment of a test program names this model.
const model = "smollm2-135m-instruct";
const bodyBytes = 4 * 1024 * 1024 - 1024;

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, { seconds: "5", connections: "6" });
  const ms = Number(values.seconds) * 1000;
  await using folder = await newFolder();
  writeFileSync(
    path.join(folder.path, "inkwell.yaml"),
    `plans:
  rich: { base: { credits: 9000000, every: P1Y }, overage: { credits: 0, every: P1Y } }
  poor:
    base: { credits: 1, every: P1Y }
    overage: { credits: 0, every: P1Y }
    limits: { requests_per_minute: 1 }
models:
  ${model}: { engine: llama, source: ${miniature}, context_window: 2048, threads: 1, gpu: off, price: { prompt: 1, completion: 1 } }
log: { level: error }
`,
  );
  await using program = startProgram(folder.path);
  const { url, operatorUrl } = await program.up();
  const token = readFileSync(path.join(folder.path, "data", "operator-token"), "utf8").trim();
  const keyOf = async (plan: string): Promise<string> => {
    const post = async (where: string, body: object): Promise<unknown> => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const answer = await fetch(operatorUrl + where, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(`${where}: ${answer.status} ${await answer.text()}`);
      return await answer.json();
    };
    await post("/admin/accounts", { id: plan, plan });
    const made = await post(`/admin/accounts/${plan}/keys`, { operation_id: plan });
    if (typeof made !== "object" || made === null || !("key" in made)) throw new Error("no key was made");
    return String(made.key);
  };
  const neighbour = { url, key: await keyOf("rich") };
  const attacker = { url, key: await keyOf("poor") };

  await ask(neighbour, 1000);
  const alone = await ask(neighbour, ms);
  const stop = new AbortController();
  const answers = new Map<string, number>();
  const attack = Array.from({ length: Number(values.connections) }, () =>
    attackUntil(attacker, stop.signal, answers),
  );
  const beside = await ask(neighbour, ms);
  stop.abort();
  await Promise.all(attack);
  await sleep(1000);
  const after = await ask(neighbour, 1000);

  const line = (latencies: readonly number[]) => {
    const sorted = latencies.toSorted((a, b) => a - b);
    const p99 = sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN;
    return {
      answers: latencies.length,
      "p50 ms": medianOf(latencies).toFixed(1),
      "p99 ms": p99.toFixed(1),
      "p50 / alone": (medianOf(latencies) / medianOf(alone)).toFixed(2),
    };
  };
  console.log(
    `Attack: ${[...answers].map(([status, count]) => `${count} x ${status}`).join(", ")} in ${ms / 1000} s over ${values.connections} connections`,
  );
  console.table({ alone: line(alone), "during the attack": line(beside), afterwards: line(after) });
}

interface Caller {
  url: string;
  key: string;
}

/** Latencies of small requests, one after the other. */
async function ask({ url, key }: Caller, ms: number): Promise<number[]> {
  const latencies: number[] = [];
  const untilMs = performance.now() + ms;
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }], max_tokens: 1 });
  while (performance.now() < untilMs) {
    const startMs = performance.now();
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    await answer.text();
    if (answer.status !== 200) throw new Error(`the neighbour was answered ${answer.status}`);
    latencies.push(performance.now() - startMs);
  }
  return latencies;
}

/** Sends the same body over one connection after another; an answer ends each. */
async function attackUntil(
  { url, key }: Caller,
  signal: AbortSignal,
  answers: Map<string, number>,
): Promise<void> {
  const message = `{"role":"user","content":"${"word ".repeat(400)}"},`;
  const count = Math.floor((bodyBytes - 200) / message.length);
  const body = `{"model":"${model}","messages":[${message.repeat(count)}{"role":"user"}]}`;
  const head = `host: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n`;
  const bytes = Buffer.from(`POST /v1/chat/completions HTTP/1.1\r\n${head}\r\n${body}`);
  while (!signal.aborted) {
    const status = await new Promise<string>((resolve) => {
      const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1" });
      let seen = "none";
      const leave = () => socket.destroy();
      signal.addEventListener("abort", leave, { once: true });
      socket.on("error", () => {});
      socket.on("data", (chunk) => {
        seen = chunk.toString("latin1", 9, 12);
        socket.destroy();
      });
      socket.on("close", () => {
        signal.removeEventListener("abort", leave);
        resolve(seen);
      });
      socket.write(bytes);
    });
    answers.set(status, (answers.get(status) ?? 0) + 1);
  }
}
