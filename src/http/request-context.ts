/** What the server knows of one request while it answers it, and the one report it makes of it at the end. */
import type { FastifyRequest } from "fastify";
import type { Caller } from "../accounts/authentication.ts";
import { type ErrorCode, invariant } from "../errors.ts";
import type { Work } from "./refusal-allowance.ts";
import type { Upload } from "./uploads.ts";

export interface FinishedRequest {
  requestId: string;
  method: string;
  /** One of the endpoints, null for any other path. */
  path: string | null;
  /** Null where the client left before an answer could be sent. */
  status: number | null;
  code: ErrorCode | null;
  durationMs: number;
  /** Until the first token was sent; null where none was, or the answer was not streamed. */
  firstTokenMs: number | null;
  accountId: string | null;
  keyId: string | null;
  /** That took the request; null where none did. */
  model: string | null;
  streamed: boolean;
  /** Work on a chat request that was not accepted after all; null if there was none. */
  refused: Work | null;
  /** The header of that name: the trace that the request belongs to, as the client says. */
  traceparent: string | null;
}

export type OnFinished = (finished: FinishedRequest) => void;

const decorator = "requestContext";

export { decorator as contextDecorator };

export class RequestContext {
  readonly requestId: string;
  readonly method: string;
  readonly path: string | null;
  readonly startedAt = performance.now();
  /** The client holds its body back until it is told to go on (`expect: 100-continue`). */
  holdsBody: boolean;
  caller: Caller | null = null;
  /** The body of a chat request. */
  upload: Upload | null = null;
  firstTokenMs: number | null = null;
  model: string | null = null;
  streamed = false;
  #isAccepted = false;
  #workMs = 0;
  readonly #traceparent: string | null;
  readonly #onFinished: OnFinished | undefined;
  #finished = false;

  constructor(request: FastifyRequest, path: string | null, onFinished: OnFinished | undefined) {
    this.requestId = request.id;
    this.method = request.method;
    this.path = path;
    this.holdsBody = request.headers.expect?.toLowerCase() === "100-continue";
    const { traceparent } = request.headers;
    this.#traceparent = typeof traceparent === "string" ? traceparent : null;
    this.#onFinished = onFinished;
  }

  elapsedMs(): number {
    return performance.now() - this.startedAt;
  }

  /**
   * Runs a synchronous stage of the request and counts its processor time. Not the time on the clock, which contains what
   * other processes do on a busy machine.
   */
  measure<T>(stage: () => T): T {
    const before = process.threadCpuUsage();
    try {
      return stage();
    } finally {
      const { user, system } = process.threadCpuUsage(before);
      this.#workMs += (user + system) / 1000;
    }
  }

  /** Ends the reservation of the body: the request can no longer be refused. */
  accept(): void {
    this.#isAccepted = true;
    this.upload?.release();
  }

  /** The first call counts: an answer that has been sent stays the answer. */
  finish(status: number | null, code: ErrorCode | null): void {
    if (this.#finished) return;
    this.#finished = true;
    this.upload?.release();
    if (this.#onFinished === undefined) return;
    const { requestId, method, path, caller, firstTokenMs, model, streamed, upload } = this;
    const isRefused = upload !== null && !this.#isAccepted;
    this.#onFinished({
      requestId,
      method,
      path,
      status,
      code,
      durationMs: this.elapsedMs(),
      firstTokenMs,
      accountId: caller?.accountId ?? null,
      keyId: caller?.keyId ?? null,
      model,
      streamed,
      refused: isRefused ? { bytes: upload.receivedBytes, ms: this.#workMs } : null,
      traceparent: this.#traceparent,
    });
  }
}

export function contextOf(request: FastifyRequest): RequestContext {
  const context: unknown = request.getDecorator(decorator);
  invariant(context instanceof RequestContext, "every request has been received");
  return context;
}

export function callerOf(request: FastifyRequest): Caller {
  const { caller } = contextOf(request);
  invariant(caller !== null, "the key has been checked before the endpoint is reached");
  return caller;
}
