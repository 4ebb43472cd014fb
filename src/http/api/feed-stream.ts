/**
 * Server-sent events to one page: states, of which only the newest counts.
 *
 * An event that is equal to the one before is not sent again. A client that does not read gets the
 * newest state of each event when it reads again, so it needs bounded memory, and is disconnected
 * after half a minute. Comments keep proxies from closing a quiet stream.
 */
import type { ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";
import { writeHead } from "../error-response.ts";

const keepAliveMs = 15_000;

export class FeedStream {
  readonly #response: ServerResponse;
  /** The last data of each event. */
  readonly #last = new Map<string, string>();
  /** Events whose last data has not been written. */
  readonly #unwritten = new Set<string>();
  #wasStuck = false;

  constructor(reply: FastifyReply) {
    this.#response = reply.raw;
    // nginx would collect events.
    writeHead(reply, 200, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
    reply.raw.flushHeaders();
    reply.raw.on("drain", () => this.#write());
    // Its client has left already.
    if (reply.raw.destroyed) return;
    const timer = setInterval(() => this.#keepAlive(), keepAliveMs);
    timer.unref();
    reply.raw.once("close", () => clearInterval(timer));
  }

  /** Calls `listener` when the stream has ended, whoever ended it. */
  onEnd(listener: () => void): void {
    if (this.#response.destroyed) listener();
    else this.#response.once("close", listener);
  }

  /** Sends data, which is JSON. */
  send(event: string, json: string): void {
    if (this.#last.get(event) === json) return;
    this.#last.set(event, json);
    this.#unwritten.add(event);
    this.#write();
  }

  #write(): void {
    for (const event of this.#unwritten) {
      const { destroyed, writableEnded, writableNeedDrain } = this.#response;
      if (destroyed || writableEnded || writableNeedDrain) return;
      this.#unwritten.delete(event);
      this.#response.write(`event: ${event}\ndata: ${this.#last.get(event)}\n\n`);
    }
  }

  #keepAlive(): void {
    if (this.#response.destroyed || this.#response.writableEnded) return;
    const isStuck = this.#response.writableNeedDrain;
    if (!isStuck) this.#response.write(":\n\n");
    else if (this.#wasStuck) this.#response.destroy();
    this.#wasStuck = isStuck;
  }
}
