/**
 * Slots for the streams of the operator API. A stream takes none of the listener's connections,
 * so that open pages cannot lock operators out: neither many pages, nor many people behind one
 * address. The connection of a stream is closed after it.
 *
 * Browsers open six connections to a host. A session therefore has four streams, which leaves two
 * for its other requests.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import { Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import { Slots } from "../../limits/slots.ts";
import type { Connections } from "../connections.ts";

/** Each takes an open file, which app/open-files.ts reserves. */
export const streamsMax = limits.streams.most;
export const streamsPerSessionMax = limits.sessionStreams.most;
const retryAfterSeconds = 30;
/** The longest that a stream goes on after its operator key has ended. */
const keyStreamMs = 60_000;

export class StreamSlots {
  readonly #connections: Pick<Connections, "release">;
  readonly #ofSessions = new Slots(limits.sessionStreams);
  readonly #all = new Slots(limits.streams);

  constructor(connections: Pick<Connections, "release">) {
    this.#connections = connections;
  }

  /** Call before the first byte. Throws `concurrency_limit_exceeded` if all slots are taken. */
  take({ session, actor, raw: { socket } }: FastifyRequest, reply: FastifyReply): void {
    // The client has left while it was authenticated.
    if (reply.raw.destroyed) return;
    const taken = [{ slots: this.#all, key: "all" }];
    if (session !== null) taken.unshift({ slots: this.#ofSessions, key: session.hash });
    const full = taken.find(({ slots, key }) => !slots.fits(key))?.slots;
    if (full === this.#ofSessions) {
      throw noPlace(`This session has ${streamsPerSessionMax} streams already, in other windows.`);
    }
    if (full !== undefined) throw noPlace(`This process has ${streamsMax} streams already.`);
    for (const { slots, key } of taken) slots.take(key);
    // A session ends its streams. The client of an operator key connects again, with the key.
    if (actor?.by.startsWith("operator_key:")) endAfter(reply, keyStreamMs);
    this.#connections.release(socket);
    reply.header("connection", "close");
    reply.raw.once("close", () => {
      for (const { slots, key } of taken) slots.release(key);
    });
  }
}

function endAfter(reply: FastifyReply, ms: number): void {
  const timer = setTimeout(() => reply.raw.destroy(), ms);
  reply.raw.once("close", () => clearTimeout(timer));
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
