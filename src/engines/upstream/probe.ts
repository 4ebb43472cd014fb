/**
 * Asks one upstream server regularly whether it responds, so that operators see its absence before
 * a caller meets it.
 *
 * Guarantees: one probe at a time, within a time limit. A server that answered a request lately is
 * not asked. A probe costs no token and refuses no request: only the circuit breaker (server.ts)
 * keeps requests from a server.
 */
import { Job } from "../../job.ts";
import { failureOfConnection } from "./failure.ts";

interface ProbeOptions {
  everyMs: number;
  /** Time limit of a probe. */
  limitMs: number;
  /** Sends a request that costs nothing. Returns the status of the response. */
  ask(signal: AbortSignal): Promise<number>;
  /** Called after each failed probe. */
  onFailure(reason: string): void;
  /** Called if a probe finds a server that was down. */
  onRecovery(): void;
}

/** Intervals differ by this part, so that servers and nodes do not keep step. */
const jitter = 0.2;

export class Probe {
  readonly #options: ProbeOptions;
  readonly #closing = new AbortController();
  readonly #job: Job;
  #isDown = false;
  #askedMs = 0;
  /** When the server was last known to respond. */
  #answeredMs = Number.NEGATIVE_INFINITY;

  /** Asks for the first time at once. */
  constructor(options: ProbeOptions) {
    this.#options = options;
    const everyMs = options.everyMs * (1 + jitter * (Math.random() - 0.5));
    const onError = (error: unknown) => this.#failed(error);
    this.#job = new Job({ name: "probe", everyMs, run: () => this.#ask(), onError });
  }

  /** True if the last probe failed and the server answered no request since. */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** Records that the server responds. Returns true if it was down. */
  answered(): boolean {
    const wasDown = this.#isDown;
    this.#isDown = false;
    this.#answeredMs = performance.now();
    return wasDown;
  }

  /** Asks at once, because a request failed. */
  doubt(): void {
    this.#answeredMs = Number.NEGATIVE_INFINITY;
    void this.#job.run();
  }

  async stop(): Promise<void> {
    this.#closing.abort();
    await this.#job.stop();
  }

  /** Throws if the server does not respond in time, or with a 5xx. */
  async #ask(): Promise<void> {
    const { everyMs, limitMs, ask, onRecovery } = this.#options;
    this.#askedMs = performance.now();
    // Half, because the last probe was answered a little later than it was sent.
    if (this.#askedMs - this.#answeredMs < everyMs / 2) return;
    const status = await ask(AbortSignal.any([this.#closing.signal, AbortSignal.timeout(limitMs)]));
    if (status >= 500) throw new ServerError(`it answered ${status}`);
    if (this.answered()) onRecovery();
  }

  #failed(error: unknown): void {
    // A request may have been answered meanwhile.
    if (this.#closing.signal.aborted || this.#answeredMs > this.#askedMs) return;
    this.#isDown = true;
    this.#options.onFailure(this.#reasonOf(error));
  }

  #reasonOf(error: unknown): string {
    if (error instanceof ServerError) return error.message;
    if (!(error instanceof Error)) return String(error);
    if (error.name === "TimeoutError") return `it did not respond within ${this.#options.limitMs / 1000} s`;
    return failureOfConnection(error, { begun: false, answered: false }).message;
  }
}

class ServerError extends Error {}
