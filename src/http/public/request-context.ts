/**
 * State of one request in the server: its record, its reserved body, and the work so far. The
 * hooks and handlers of a request find it on the request of Fastify.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Caller } from "../../accounts/keys.ts";
import { type CallerCode, catalogue, invariant } from "../../errors.ts";
import type { RequestRecord, Work } from "../../telemetry/request-record.ts";
import type { Upload } from "./uploads.ts";

export const contextDecorator = "requestContext";

/** Counts the work on a refused request against the allowance of its account. */
type ChargeRefused = (caller: Caller, work: Work) => void;

export class RequestContext {
  readonly record: RequestRecord;
  /** The client sends its body only after it has been asked for it (`expect: 100-continue`). */
  holdsBody: boolean;
  /** The body of a chat request. */
  upload: Upload | null = null;
  /** Reads who asks again. Null: the request has no rights. */
  callerNow: (() => Promise<Caller>) | null = null;
  #workMs = 0;
  readonly #chargeRefused: ChargeRefused;

  constructor(record: RequestRecord, chargeRefused: ChargeRefused, holdsBody: boolean) {
    this.record = record;
    this.holdsBody = holdsBody;
    this.#chargeRefused = chargeRefused;
  }

  /**
   * Runs a synchronous stage of the request and counts its processor time. Wall-clock time would
   * include the work of other processes on a busy machine.
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

  /** Ends the reservation of the body, because the request cannot be refused any more. */
  accept(): void {
    this.record.isAccepted = true;
    this.upload?.release();
  }

  /**
   * Ends the record. Only the first call counts, because an answer that was sent cannot change.
   */
  finish(status: number | null, code: CallerCode | null): void {
    const { record, upload } = this;
    if (record.isFinished) return;
    upload?.release();
    // An engine may refuse a request that it had accepted.
    const isAtFault = code !== null && catalogue[code].status === 400;
    const isRefused = upload !== null && (!record.isAccepted || isAtFault);
    const refused = isRefused ? { bytes: upload.receivedBytes, ms: this.#workMs } : null;
    if (refused !== null && record.caller !== null) this.#chargeRefused(record.caller, refused);
    record.finish(status, code, refused);
  }

  /** Ends a request whose client has left. The rest of the answer is not sent. */
  finishUnanswered(reply: FastifyReply): void {
    reply.hijack();
    this.finish(reply.raw.headersSent ? 200 : null, null);
  }
}

/** Whether the request is one of the chat or of the public listener. */
export function hasContext(request: FastifyRequest): boolean {
  return request.getDecorator(contextDecorator) instanceof RequestContext;
}

export function contextOf(request: FastifyRequest): RequestContext {
  const context: unknown = request.getDecorator(contextDecorator);
  invariant(context instanceof RequestContext, "every request has a context");
  return context;
}

export function callerOf(request: FastifyRequest): Caller {
  const { caller } = contextOf(request).record;
  invariant(caller !== null, "the key is checked before the endpoint is called");
  return caller;
}
