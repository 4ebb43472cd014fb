/** How requests of commands reach an operator listener: over HTTP, or inside of this process. */
import type { RequestOptions } from "node:http";
import * as https from "node:https";
import { duplexPair, type Readable } from "node:stream";
import { TLSSocket } from "node:tls";
import type { LocalOperator } from "../app/local-operator.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";

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
  /** How long to wait before a repetition. NaN: the service names no time. */
  retryAfterMs: number;
  body: Readable;
  /** It has the id that every answer of Inkwell has. */
  isInkwell: boolean;
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
type Through = RequestOptions | "directly";

/** An import would read all exports, and so load Node's fetch and WebSocket: 4 MB. */
const http = process.getBuiltinModule("node:http");

/** Nothing has reached a service then. */
const unsentCodes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

/**
 * `through`: default, as the environment says. A proxy that it names would get the operator token,
 * so what is on this machine is asked `directly`.
 */
export function overHttp(url: string, headers: Headers, through: Through = {}): Transport {
  const { request, Agent } = url.startsWith("https:") ? https : http;
  const connection = through === "directly" ? { agent: new Agent({ keepAlive: true }) } : through;
  return {
    async ask({ method, path, body, silenceMs }) {
      const { promise, resolve, reject } = Promise.withResolvers<Answer>();
      const options = { method, headers: headersOf(headers, body) };
      const sending = request(`${url}${path}`, { ...options, ...connection });
      sending.on("response", (response) => {
        const { statusCode: status = 0, headers: answered } = response;
        const retryAfterMs = Math.max(Number(answered["retry-after"]), 1) * 1000;
        resolve({ status, retryAfterMs, body: response, isInkwell: "x-request-id" in answered });
      });
      sending.on("error", reject);
      if (silenceMs !== null) {
        const late = () => sending.destroy(new Error(`no answer within ${silenceMs / 1000} s`));
        sending.setTimeout(silenceMs, late);
      }
      sending.end(body ?? undefined);
      return await promise.catch((error: unknown) => {
        const code = codeOf(error);
        const isSent = !unsentCodes.includes(code ?? "") && !isRefused(sending.socket, code);
        throw new NoAnswer(`No service responds at ${url} (${code ?? messageOf(error)}).`, {
          isSent,
          cause: error,
        });
      });
    },
  };
}

/** The connection was not made, because of its certificate or because the other end has no TLS. */
function isRefused(socket: unknown, code: string | undefined): boolean {
  if (!(socket instanceof TLSSocket)) return false;
  return String(socket.authorizationError) === code || Reflect.get(socket, "secureConnecting") === true;
}

/** The header of a key. `name`: where the key comes from. */
export function keyHeader(key: string, name: string): { authorization: string } {
  if (/^[!-~]*$/.test(key)) return { authorization: `Bearer ${key}` };
  throw new OperatorError(`${name} has characters that no key has, such as a space or a line end.`);
}

/** The same over a pair of streams in place of a connection. */
export function inProcess({ app }: LocalOperator, headers: Headers): Transport {
  const createConnection = () => {
    const [ours, its] = duplexPair();
    app.server.emit("connection", Object.assign(its, { remoteAddress: "127.0.0.1" }));
    return ours;
  };
  const { ask } = overHttp("http://127.0.0.1", headers, { createConnection });
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
