/**
 * One of the servers that `bench/gateway.ts` measures, in a process of its own: `inkwell` as main.ts puts it together,
 * with a scripted engine, or `raw`, a bare Fastify handler that answers with the same bytes. Tells its parent where
 * it listens and, when asked, the processor time it has used.
 */
import { join } from "node:path";
import { fastify } from "fastify";
import { pino } from "pino";
import { authenticate, hashKey, mintKey } from "../src/access/keys.ts";
import { balanceOf } from "../src/credits/balance.ts";
import { Ledger } from "../src/credits/ledger.ts";
import { ScriptedEngine } from "../src/engines/scripted.ts";
import { Catalog } from "../src/generation/catalog.ts";
import { generate, type Receipt } from "../src/generation/generate.ts";
import { RequestLog } from "../src/main/request-log.ts";
import { Metrics } from "../src/server/metrics.ts";
import { createPublicServer } from "../src/server/public.ts";
import { newRequestId } from "../src/server/request-id.ts";
import { openSqliteStore } from "../src/store/sqlite.ts";
import { completionObject } from "../src/wire/response.ts";
import { ChunkEncoder, doneEvent } from "../src/wire/sse.ts";
import { accountId, plans, price } from "./ledger-file.ts";

export interface Started {
  port: number;
  keys: string[];
}

const model = "bench";
const answer = "Hello";

async function startInkwell(clients: number, folder: string): Promise<Started> {
  const store = await openSqliteStore({ path: join(folder, "inkwell.db"), plans });
  const metrics = new Metrics();
  const logger = pino({ base: null }, pino.destination(join(folder, "log")));
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
  const engine = new ScriptedEngine({ tokens: [answer] });
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

async function startRaw(clients: number): Promise<Started> {
  const app = fastify({ logger: false });
  const usage = {
    promptTokens: 10,
    cachedTokens: 0,
    completionTokens: 1,
    reasoningTokens: 0,
    estimated: false,
  };
  app.post<{ Body: { stream?: boolean } }>("/v1/chat/completions", async (request, reply) => {
    const head = { id: `chatcmpl-${newRequestId()}`, created: Math.floor(Date.now() / 1000), model };
    if (request.body.stream !== true) {
      return completionObject(head, { text: answer, finishReason: "length", usage });
    }
    const chunks = new ChunkEncoder(head, { includeUsage: false, includeObfuscation: false });
    reply.hijack();
    reply.raw.writeHead(200, { "content-type": "text/event-stream" });
    reply.raw.write(chunks.first() + chunks.text(answer, undefined));
    reply.raw.end(chunks.last("length") + doneEvent);
    return reply;
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  return { port: Number(new URL(url).port), keys: Array.from({ length: clients }, mintKey) };
}

const [which = "", clients = "", folder = ""] = process.argv.slice(2);
process.on("message", () => process.send?.(process.cpuUsage()));
process.send?.(await (which === "raw" ? startRaw(Number(clients)) : startInkwell(Number(clients), folder)));
