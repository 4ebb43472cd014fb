/** How requests of commands reach an operator listener: over HTTP, or inside of this process. */
import * as http from "node:http";
import * as https from "node:https";
import { type Duplex, duplexPair, type Readable } from "node:stream";
import type { LocalOperator } from "../app/local-operator.ts";
import { codeOf, messageOf } from "../errors.ts";

export interface Sent {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  /** With its query. */
  path: string;
  body: string | null;
  /** The longest silence of the service. Null: it may take any time. */
  silenceMs: number | null;
}

export interface Answer {
  status: number;
  body: Readable;
}

/** No answer arrived. `isSent`: the service may have done what was asked. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
  readonly isSent: boolean;

  constructor(message: string, { isSent, cause }: { isSent: boolean; cause?: unknown }) {
    super(message, { cause });
    this.isSent = isSent;
  }
}

export interface Transport {
  ask(sent: Sent): Promise<Answer>;
}

type Headers = Readonly<Record<string, string>>;

/** Nothing has reached a service then. */
const unsentCodes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

/** `createConnection`: default, over the network. */
export function overHttp(url: string, headers: Headers, createConnection?: () => Duplex): Transport {
  const { request } = url.startsWith("https:") ? https : http;
  return {
    async ask({ method, path, body, silenceMs }) {
      const { promise, resolve, reject } = Promise.withResolvers<Answer>();
      const options = { method, headers: headersOf(headers, body) };
      const through = createConnection === undefined ? {} : { createConnection };
      const sending = request(`${url}${path}`, { ...options, ...through });
      sending.on("response", (response) => resolve({ status: response.statusCode ?? 0, body: response }));
      sending.on("error", reject);
      if (silenceMs !== null) {
        const late = () => sending.destroy(new Error(`no answer within ${silenceMs / 1000} s`));
        sending.setTimeout(silenceMs, late);
      }
      sending.end(body ?? undefined);
      return await promise.catch((error: unknown) => {
        const code = codeOf(error);
        const isSent = !unsentCodes.includes(code ?? "");
        throw new NoAnswer(`No service responds at ${url} (${code ?? messageOf(error)}).`, {
          isSent,
          cause: error,
        });
      });
    },
  };
}

/** The same over a pair of streams in place of a connection. */
export function inProcess({ app }: LocalOperator, headers: Headers): Transport {
  const { ask } = overHttp("http://127.0.0.1", headers, () => {
    const [ours, its] = duplexPair();
    app.server.emit("connection", Object.assign(its, { remoteAddress: "127.0.0.1" }));
    return ours;
  });
  return { ask: (sent) => ask({ ...sent, silenceMs: null }) };
}

function headersOf(headers: Headers, body: string | null): Record<string, string> {
  if (body === null) return { ...headers };
  return {
    ...headers,
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body)),
  };
}
