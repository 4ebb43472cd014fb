/**
 * A bare gateway, the floor of the benchmarks before an upstream, in a process of its own: Fastify
 * and undici, and nothing else. It checks, meters and logs nothing.
 * - `proxy` fetches whole answers as one JSON object, which it parses and encodes.
 * - `reader` asks for a stream, as Inkwell does, and makes the same JSON object of its events.
 * Both pass on the bytes of streams.
 */
import { createParser } from "eventsource-parser";
import { fastify } from "fastify";
import { type Dispatcher, Pool } from "undici";
import type { Started } from "./gateway-server.ts";
import { wholePath } from "./upstream-answers.ts";

export interface BareTask {
  which: "proxy" | "reader";
  /** Each has a connection to the upstream. */
  clients: number;
  /** Origin of the upstream, which has a path for each model. */
  upstream: string;
}

interface Chunk {
  id: string;
  created: number;
  model: string;
  choices: { delta: { content?: string }; finish_reason: string | null }[];
  usage?: object | null;
}

/** Makes the answer that the server would have given as one object. */
async function readStream(body: Dispatcher.ResponseData["body"]): Promise<object> {
  let text = "";
  let finishReason: string | null = null;
  let usage: object | null = null;
  let last: Chunk | null = null;
  const parser = createParser({
    onEvent({ data }) {
      if (data === "[DONE]") return;
      const chunk: Chunk = JSON.parse(data);
      const [choice] = chunk.choices;
      text += choice?.delta.content ?? "";
      finishReason = choice?.finish_reason ?? finishReason;
      usage = chunk.usage ?? usage;
      last = chunk;
    },
  });
  for await (const part of body.setEncoding("utf8")) parser.feed(part);
  if (last === null) throw new Error("the upstream sent no event");
  const { id, created, model }: Chunk = last;
  const message = { role: "assistant", content: text };
  const choices = [{ index: 0, message, logprobs: null, finish_reason: finishReason }];
  return { id, object: "chat.completion", created, model, choices, usage };
}

async function start({ which, clients, upstream }: BareTask): Promise<Started> {
  const path = "/v1/chat/completions";
  const headers = { "content-type": "application/json" };
  const pool = new Pool(upstream, { connections: clients });
  const app = fastify({ logger: false });
  app.post<{ Body: { model: string; stream?: boolean } }>(path, async (request, reply) => {
    const { model, stream } = request.body;
    const isRead = which === "reader" && stream !== true;
    const asked = isRead
      ? { ...request.body, stream: true, stream_options: { include_usage: true } }
      : request.body;
    const at = `/${model}${asked.stream === true ? "" : wholePath}${path}`;
    const fetched = await pool.request({ path: at, method: "POST", headers, body: JSON.stringify(asked) });
    if (isRead) return await readStream(fetched.body);
    if (stream !== true) return await fetched.body.json();
    reply.hijack();
    reply.raw.writeHead(200, { "content-type": "text/event-stream" });
    for await (const bytes of fetched.body) reply.raw.write(bytes);
    reply.raw.end();
    return reply;
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  return { port: Number(new URL(url).port), keys: Array.from({ length: clients }, (_, n) => `key-${n}`) };
}

const [argument = ""] = process.argv.slice(2);
process.on("message", () => process.send?.(process.cpuUsage()));
process.send?.(await start(JSON.parse(argument)));
