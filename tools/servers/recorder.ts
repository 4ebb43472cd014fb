/**
 * Stands between Inkwell and a model server: passes everything on, and keeps each chat request
 * with the raw bytes of its answer. These are the books of the server.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
}

export interface Exchange {
  path: string;
  /** The field `user`, which names the request of the caller. */
  user: string;
  sent: string;
  status: number;
  received: string;
  /** The server has ended its answer itself. */
  isWhole: boolean;
}

/** The counts and the form of one answer. */
export interface Book {
  usage: Usage | null;
  /** Tokens that it shows: the last count that came with an event, or the events with text. */
  made: number;
  finishReason: string | null;
  /** Everything but events with data of the usual form. */
  oddities: string[];
}

interface Chunk {
  choices?: { delta?: Record<string, unknown>; finish_reason?: string | null }[];
  usage?: Usage | null;
  timings?: { predicted_n?: number };
}

const usualKeys =
  /^(?:id|object|created|model|choices|usage|system_fingerprint|timings|index|delta|finish_reason|logprobs|role|content)$/;

export function bookOf({ status, received }: Exchange): Book {
  const book: Book = { usage: null, made: 0, finishReason: null, oddities: [] };
  const oddities = new Set<string>();
  let texts = 0;
  if (status !== 200) return book;
  for (const line of received.split(/\r?\n/)) {
    if (line === "" || line === "data: [DONE]") continue;
    const data = /^data: ?(.+)$/.exec(line)?.[1];
    if (data === undefined) {
      oddities.add(`line ${line.slice(0, 60)}`);
      continue;
    }
    let chunk: Chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      // The connection was closed inside an event.
      continue;
    }
    const [choice] = chunk.choices ?? [];
    const keys = [chunk, choice ?? {}, choice?.delta ?? {}].flatMap(Object.keys);
    for (const key of keys.filter((each) => !usualKeys.test(each))) oddities.add(`key ${key}`);
    if (chunk.usage) {
      oddities.add(choice === undefined ? "usage without choices" : "usage with choices");
      book.usage = chunk.usage;
    }
    if (typeof choice?.delta?.content === "string" && choice.delta.content !== "") texts += 1;
    book.finishReason = choice?.finish_reason ?? book.finishReason;
    book.made = Math.max(
      book.made,
      texts,
      chunk.usage?.completion_tokens ?? 0,
      chunk.timings?.predicted_n ?? 0,
    );
  }
  book.oddities = [...oddities];
  return book;
}

export interface Recorder extends AsyncDisposable {
  readonly port: number;
  readonly exchanges: Exchange[];
}

/** Listens on a free port, and passes requests on to `port`. */
export async function startRecorder(port: number): Promise<Recorder> {
  const exchanges: Exchange[] = [];
  const pass = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const parts: Buffer[] = [];
    for await (const part of incoming) parts.push(part);
    const sent = Buffer.concat(parts);
    const { url: path = "", method = "GET", headers } = incoming;
    const exchange: Exchange = {
      path,
      user: "",
      sent: sent.toString(),
      status: 0,
      received: "",
      isWhole: false,
    };
    if (path.endsWith("/chat/completions")) {
      exchange.user = String(JSON.parse(exchange.sent).user ?? "");
      exchanges.push(exchange);
    }
    // A kept connection may be stale, which Inkwell would have to notice.
    const passed = request({ agent: false, host: "127.0.0.1", port, path, method, headers }, (answer) => {
      exchange.status = answer.statusCode ?? 0;
      outgoing.writeHead(exchange.status, answer.headers);
      answer
        .on("data", (data: Buffer) => {
          exchange.received += data.toString("latin1");
          outgoing.write(data);
        })
        .on("error", () => outgoing.destroy())
        .on("end", () => {
          exchange.isWhole = true;
          outgoing.end();
        });
    });
    passed.on("error", () => outgoing.destroy());
    outgoing.on("close", () => passed.destroy());
    passed.end(sent);
  };
  const server = createServer((incoming, outgoing) => {
    pass(incoming, outgoing).catch(() => outgoing.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    exchanges,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
