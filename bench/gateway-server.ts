/**
 * One of the servers that the benchmarks of the HTTP path measure, in a process of its own:
 * - `inkwell`: the public listener as app.ts creates it, with a scripted engine.
 * - `bare`: a Fastify handler that responds with the same bytes.
 * - `upstream`: the mock upstream.
 * The bare gateways are in bench/bare-gateway.ts.
 *
 * The process reports its port to its parent and, on request, its processor time and memory.
 */
import { join } from "node:path";
import { fastify } from "fastify";
import { hashKey, mintKey } from "../src/accounts/keys.ts";
import { Catalog } from "../src/chat/catalog.ts";
import { keepNewObjectsYoung } from "../src/heap.ts";
import { ChunkEncoder } from "../src/http/openai-format/chunk-encoder.ts";
import { completionJson, doneEvent } from "../src/http/openai-format/response.ts";
import { PublicServer } from "../src/http/public/server.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import { createLogger } from "../src/telemetry/logger.ts";
import { Metrics } from "../src/telemetry/metrics.ts";
import { newRequestId } from "../src/telemetry/request-record.ts";
import { ScriptedEngine } from "../test/fixtures/scripted-engine.ts";
import { plans, price } from "./ledger-file.ts";
import { startMockUpstream } from "./mock-upstream.ts";
import { openAccount } from "./pair.ts";

export type Which = "inkwell" | "bare" | "upstream";

/** Options of a server. */
export interface ServerTask {
  which: Which;
  /** Number of clients, each with its own key. */
  clients: number;
  /** Folder of the database. */
  folder: string;
  /** Of the mock upstream. Default: a free one. */
  port?: number;
  /** Answer of the scripted engine of `inkwell`. Default: one token at once. */
  script?: { tokens: number; tokenMs: number };
}

export interface Started {
  port: number;
  keys: string[];
}

/** Bytes after a garbage collection. */
export interface Memory {
  resident: number;
  /** Memory of JavaScript with its buffers. */
  heap: number;
}

const path = "/v1/chat/completions";
const model = "short";
const answer = "Hello";

async function startInkwell(task: ServerTask): Promise<Started> {
  const { clients, folder, script } = task;
  // As the program does.
  keepNewObjectsYoung();
  const store = await openSqliteStore({ path: join(folder, "inkwell.db"), plans });
  const metrics = new Metrics();
  // Standard error is a file here, as under a service manager.
  const logger = createLogger("info", process.stderr);
  const ledger = new Ledger(store, { onCommit: (commit) => metrics.committed(commit) });
  const keys: string[] = [];
  for (let n = 0; n < clients; n += 1) {
    const key = mintKey();
    keys.push(key);
    await openAccount(store, ledger, n, { hash: hashKey(key), lastFour: key.slice(-4) });
  }
  const fields = { price, outputTokensMax: null, created: 1_700_000_000, ownedBy: "inkwell" };
  const catalog = new Catalog([{ ...fields, id: model, engine: scriptedEngine(script) }]);
  const server = new PublicServer(
    { store, ledger, catalog, metrics, logger },
    {
      holdTtlMs: 30_000,
      limits: {
        bodyBytesMax: 4_194_304,
        uploadBytesMax: 67_108_864,
        uploadMs: 120_000,
        refusedBytesPerMinute: 62_914_560,
        refusedMsPerMinute: 1_200,
        messagesMax: 2048,
        keysMax: 32_768,
        streamIdleMs: 120_000,
        keepAliveMs: 15_000,
      },
      corsOrigins: [],
      connections: { connectionsMax: 20_000, connectionsPerAddressMax: 20_000, trustedProxies: [] },
    },
  );
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  return { port: Number(new URL(url).port), keys };
}

function scriptedEngine({ tokens, tokenMs } = { tokens: 1, tokenMs: 0 }): ScriptedEngine {
  const script = { tokens: Array.from({ length: tokens }, () => answer), tokenDelayMs: tokenMs };
  const engine = new ScriptedEngine(() => {
    // It keeps what it was asked, for tests; here that would be all there is in memory.
    engine.prompts.length = 0;
    engine.options.length = 0;
    return script;
  });
  return engine;
}

const usage = {
  promptTokens: 10,
  cachedTokens: 0,
  completionTokens: 1,
  reasoningTokens: 0,
  estimated: false,
};

function newHead() {
  return { id: `chatcmpl-${newRequestId()}`, created: Math.floor(Date.now() / 1000), model };
}

function wholeAnswer() {
  return completionJson(newHead(), { text: answer, finishReason: "length", usage });
}

/** In the two writes that Inkwell makes. */
function streamedAnswer(): [string, string] {
  const chunks = new ChunkEncoder(newHead(), { includeUsage: false, includeObfuscation: false });
  return [chunks.first() + chunks.text(answer, undefined), chunks.last("length") + doneEvent];
}

const streamHeaders = { "content-type": "text/event-stream" };
const local = { host: "127.0.0.1", port: 0 };

async function startBare({ clients }: ServerTask): Promise<Started> {
  const app = fastify({ logger: false });
  app.post<{ Body: { stream?: boolean } }>(path, async (request, reply) => {
    if (request.body.stream !== true) return reply.type("application/json").send(wholeAnswer());
    const [first, last] = streamedAnswer();
    reply.hijack();
    reply.raw.writeHead(200, streamHeaders);
    reply.raw.write(first);
    reply.raw.end(last);
    return reply;
  });
  return started(await app.listen(local), clients);
}

async function startUpstream({ clients, port }: ServerTask): Promise<Started> {
  return started(await startMockUpstream(port), clients);
}

function started(url: string, clients: number): Started {
  return { port: Number(new URL(url).port), keys: Array.from({ length: clients }, mintKey) };
}

function memory(): Memory {
  globalThis.gc?.();
  const { rss, heapUsed, external } = process.memoryUsage();
  return { resident: rss, heap: heapUsed + external };
}

const starts = { inkwell: startInkwell, bare: startBare, upstream: startUpstream };

const [argument = ""] = process.argv.slice(2);
const task: ServerTask = JSON.parse(argument);
process.on("message", (question) => process.send?.(question === "memory" ? memory() : process.cpuUsage()));
process.send?.(await starts[task.which](task));
