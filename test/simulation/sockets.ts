/**
 * Connections of a simulated network: pairs of streams with delays. A connection can be cut, with
 * or without a word to the other side, and each side reads as fast as its owner.
 */
import { Duplex } from "node:stream";
import type { Owner, Timeline, Timer } from "./timeline.ts";

export class SimulatedSocket extends Duplex {
  readonly remoteAddress: string;
  readonly remotePort = 40_000;
  readonly localAddress = "10.0.0.1";
  readonly localPort = 80;
  readonly connecting = false;
  readonly #timeline: Timeline;
  readonly #owner: Owner | null;
  readonly #delayMs: () => number;
  #peer: SimulatedSocket | null = null;
  /** When the last bytes of this side arrive at the other: bytes never overtake each other. */
  #arrivesMs = 0;
  /** The other side has not read yet what arrived last. */
  #unread: (() => void) | null = null;
  /** Nothing arrives any more, in both directions, and neither side notices. */
  #isSilent = false;
  #idle: Timer | null = null;

  constructor(options: {
    timeline: Timeline;
    /** The process at this side. */
    owner: Owner | null;
    remoteAddress: string;
    delayMs: () => number;
  }) {
    super({ allowHalfOpen: true, emitClose: true });
    this.#timeline = options.timeline;
    this.#owner = options.owner;
    this.#delayMs = options.delayMs;
    this.remoteAddress = options.remoteAddress;
    // A side may close before its owner listens.
    this.on("error", () => {});
  }

  join(peer: SimulatedSocket): void {
    this.#peer = peer;
  }

  /** The network drops everything from now on, and neither side notices. */
  silence(): void {
    this.#isSilent = true;
    if (this.#peer !== null) this.#peer.#isSilent = true;
  }

  /** The network closes the connection, and both sides notice at once. */
  cut(): void {
    for (const side of [this, this.#peer]) side?.destroy(reset());
  }

  setTimeout(ms: number, listener?: () => void): this {
    this.#idle?.close();
    this.#idle = null;
    if (listener !== undefined) this.once("timeout", listener);
    if (ms > 0) this.#idle = this.#timeline.after(ms, () => this.emit("timeout"), this.#owner);
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#idle?.refresh();
    this.#send((peer) => {
      peer.#idle?.refresh();
      if (peer.push(chunk)) done();
      else peer.#unread = done;
    });
  }

  override _read(): void {
    const done = this.#unread;
    this.#unread = null;
    done?.();
  }

  override _final(done: () => void): void {
    this.#send((peer) => peer.push(null));
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#idle?.close();
    const isWhole = this.writableFinished;
    this.#send((peer) => {
      // A side that has sent all of its bytes needs no error.
      if (!isWhole || !peer.writableFinished) peer.destroy(reset());
    });
    done(error);
  }

  /** The other side gets it after the delay of the network. */
  #send(deliver: (peer: SimulatedSocket) => void): void {
    const { nowMs } = this.#timeline;
    this.#arrivesMs = Math.max(this.#arrivesMs, nowMs + this.#delayMs());
    const peer = this.#peer;
    this.#timeline.after(this.#arrivesMs - nowMs, () => {
      if (peer === null || peer.destroyed || this.#isSilent || peer.#owner?.isGone === true) return;
      deliver(peer);
    });
  }
}

function reset(): Error {
  return Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
}
