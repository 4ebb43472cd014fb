/**
 * One of the servers that `bench/gateway.ts` measures, in a process of its own. `inkwell`: as main.ts puts it
 * together, with a scripted engine. `bare`: a Fastify handler that answers with the same bytes. `proxy`: one that
 * fetches them through undici from `upstream`, which answers with the same bytes from Node's own HTTP server.
 *
 * Tells its parent where it listens and, when asked, the processor time it has used.
 */
import { createServer } from "node:http";
import { join } from "node:path";
import { fastify } from "fastify";
import { Pool } from "undici";
import { authenticate, hashKey, mintKey } from "../src/access/keys.ts";
import { balanceOf } from "../src/credits/balance.ts";
import { Ledger } from "../src/credits/ledger.ts";
import { ScriptedEngine } from "../src/engines/scripted.ts";
import { Catalog } from "../src/generation/catalog.ts";
import { generate, type Receipt } from "../src/generation/generate.ts";
import { createLogger } from "../src/main/logging.ts";
import { RequestLog } from "../src/main/request-log.ts";
import { Metrics } from "../src/server/metrics.ts";
import { createPublicServer } from "../src/server/public.ts";
import { newRequestId } from "../src/server/request-id.ts";
import { openSqliteStore } from "../src/store/sqlite.ts";
import { completionObject } from "../src/wire/response.ts";
import { ChunkEncoder, doneEvent } from "../src/wire/sse.ts";
import { accountId, plans, price } from "./ledger-file.ts";

export type Which = "inkwell" | "bare" | "proxy" | "upstream";

/** What a server is started with. */
export interface ServerTask {
  which: Which;
  /** One key for each. */
  clients: number;
  /** For its database. */
  folder: string;
  /** Where `proxy` fetches its answers. */
  upstreamPort?: number;
}

export interface Started {
  port: number;
  keys: string[];
}

const path = "/v1/chat/completions";
const model = "bench";
const answer = "Hello";

async function startInkwell({ clients, folder }: ServerTask): Promise<Started> {
  const store = await openSqliteStore({ path: join(folder, "inkwell.db"), plans });
  const metrics = new Metrics();
  // Which goes to a file here, as it does under a service manager.
  const logger = createLogger("info", process.stderr);
  const requestLog = new RequestLog(logger);
  const ledger = new Ledger(store, { onCommit: (commit) => metrics.committed(commit) });
  const keys: string[] = [];
  for (let n = 0; n < clients; n += 1) {
    const account = accountId(n);
    await ledger.apply({ kind: "open", account, plan: "bench" });
    const key = mintKey();
    keys.push(key);
    await store.addKey({
      id: `key_${n}`,
      account,
      hash: hashKey(key),
      name: null,
      lastFour: key.slice(-4),
      models: ["*"],
      requestsPerMinute: null,
      tokensPerMinute: null,
      concurrent: null,
      createdMs: Date.now(),
      expiresMs: null,
      revokedMs: null,
      lastUsedMs: null,
      requestsTatMs: 0,
      tokensTatMs: 0,
      holds: 0,
    });
  }
  const engine = new ScriptedEngine(() => {
    // It keeps what it was asked, for tests; here that would be all there is in memory.
    engine.prompts.length = 0;
    engine.options.length = 0;
    return { tokens: [answer] };
  });
  const catalog = new Catalog([{ id: model, engine, price, created: 1_700_000_000, ownedBy: "inkwell" }]);
  const pipeline = {
    catalog,
    ledger,
    holdTtlMs: 30_000,
    onSettled: (receipt: Receipt) => {
      metrics.settled(receipt);
      requestLog.settled(receipt);
    },
  };
  const callerOf = authenticate(store, plans);
  const server = createPublicServer(
    {
      catalog,
      logger,
      authenticate: (header) => callerOf(header, Date.now()),
      generate: (caller, request, requestId, signal) =>
        generate(pipeline, caller, request, requestId, signal),
      readBalance: async (id) => balanceOf(await store.snapshot(id), plans),
      onFinished: (finished) => {
        metrics.finished(finished);
        requestLog.finished(finished);
      },
    },
    {
      limits: { bodyBytesMax: 4_194_304, messagesMax: 2048, streamIdleMs: 120_000, keepAliveMs: 15_000 },
      corsOrigins: [],
    },
  );
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  return { port: Number(new URL(url).port), keys };
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
  return completionObject(newHead(), { text: answer, finishReason: "length", usage });
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
    if (request.body.stream !== true) return wholeAnswer();
    const [first, last] = streamedAnswer();
    reply.hijack();
    reply.raw.writeHead(200, streamHeaders);
    reply.raw.write(first);
    reply.raw.end(last);
    return reply;
  });
  return started(await app.listen(local), clients);
}

async function startProxy({ clients, upstreamPort }: ServerTask): Promise<Started> {
  const pool = new Pool(`http://127.0.0.1:${upstreamPort}`, { connections: clients });
  const app = fastify({ logger: false });
  app.post<{ Body: { stream?: boolean } }>(path, async (request, reply) => {
    const body = JSON.stringify(request.body);
    const headers = { "content-type": "application/json" };
    const fetched = await pool.request({ path, method: "POST", headers, body });
    if (request.body.stream !== true) {
      reply.type("application/json; charset=utf-8");
      return await fetched.body.text();
    }
    reply.hijack();
    reply.raw.writeHead(200, streamHeaders);
    for await (const bytes of fetched.body) reply.raw.write(bytes);
    reply.raw.end();
    return reply;
  });
  return started(await app.listen(local), clients);
}

async function startUpstream({ clients }: ServerTask): Promise<Started> {
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      const { stream }: { stream?: boolean } = JSON.parse(body);
      if (stream !== true) {
        const text = JSON.stringify(wholeAnswer());
        response.writeHead(200, {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(text),
        });
        response.end(text);
        return;
      }
      const [first, last] = streamedAnswer();
      response.writeHead(200, streamHeaders);
      response.write(first);
      response.end(last);
    });
  });
  await new Promise<void>((resolve) => server.listen(local, resolve));
  const address = server.address();
  const port = address === null || typeof address === "string" ? 0 : address.port;
  return started(`http://127.0.0.1:${port}`, clients);
}

function started(url: string, clients: number): Started {
  return { port: Number(new URL(url).port), keys: Array.from({ length: clients }, mintKey) };
}

const starts = { inkwell: startInkwell, bare: startBare, proxy: startProxy, upstream: startUpstream };

const [argument = ""] = process.argv.slice(2);
const task: ServerTask = JSON.parse(argument);
process.on("message", () => process.send?.(process.cpuUsage()));
process.send?.(await starts[task.which](task));
