/**
 * Places for the streams of the operator API. A stream takes none of the listener's connections,
 * so that open pages cannot lock operators out: neither many pages, nor many people behind one
 * address. The connection of a stream is closed after it.
 *
 * Browsers open six connections to a host. A session therefore has four streams, which leaves two
 * for its other requests.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import { Refusal } from "../../errors.ts";
import type { Connections } from "../connections.ts";

/** Each takes an open file, which app/open-files.ts reserves. */
export const streamsMax = 128;
export const streamsPerSessionMax = 4;
const retryAfterSeconds = 30;

export class StreamPlaces {
  readonly #connections: Pick<Connections, "release">;
  readonly #perSession = new Map<string, number>();
  #count = 0;

  constructor(connections: Pick<Connections, "release">) {
    this.#connections = connections;
  }

  /** Call before the first byte. Throws `concurrency_limit_exceeded` if all places are taken. */
  take({ session, raw: { socket } }: FastifyRequest, reply: FastifyReply): void {
    // The client has left while it was authenticated.
    if (reply.raw.destroyed) return;
    const ofSession = session === null ? 0 : (this.#perSession.get(session.hash) ?? 0);
    if (ofSession >= streamsPerSessionMax) {
      throw noPlace(`This session has ${streamsPerSessionMax} streams already, in other windows.`);
    }
    if (this.#count >= streamsMax) throw noPlace(`This process has ${streamsMax} streams already.`);
    this.#count += 1;
    if (session !== null) this.#perSession.set(session.hash, ofSession + 1);
    this.#connections.release(socket);
    reply.header("connection", "close");
    reply.raw.once("close", () => {
      this.#count -= 1;
      if (session === null) return;
      const left = (this.#perSession.get(session.hash) ?? 1) - 1;
      if (left > 0) this.#perSession.set(session.hash, left);
      else this.#perSession.delete(session.hash);
    });
  }
}

function noPlace(reason: string): Refusal {
  return new Refusal(
    "concurrency_limit_exceeded",
    `${reason} The same route without /stream responds once.`,
    {
      retryAfterSeconds,
    },
  );
}
