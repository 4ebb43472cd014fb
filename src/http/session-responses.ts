/**
 * Ends the responses that are under way for a session when the session ends: streams, downloads,
 * and long operations, whose answer is lost.
 *
 * A session that ends on another node is noticed within `everyMs` and the time of one read. If the
 * database does not answer, the responses end too: nothing shows that their session is valid.
 */
import type { ServerResponse } from "node:http";

interface SessionResponsesOptions {
  /** Returns which of the sessions have not ended. */
  valid(sessions: readonly string[]): Promise<ReadonlySet<string>>;
  /** Called if the sessions could not be read. */
  onError(error: unknown): void;
  everyMs?: number;
  /** Time limit of one read. */
  readMs?: number;
}

export class SessionResponses {
  readonly #options: Required<SessionResponsesOptions>;
  readonly #bySession = new Map<string, Set<ServerResponse>>();
  #timer: NodeJS.Timeout | null = null;

  constructor(options: SessionResponsesOptions) {
    this.#options = { everyMs: 400, readMs: 5_000, ...options };
  }

  /** Ends the response if the session ends before it. */
  add(session: string, response: ServerResponse): void {
    const responses = this.#bySession.get(session) ?? new Set();
    this.#bySession.set(session, responses.add(response));
    response.once("close", () => {
      responses.delete(response);
      if (responses.size === 0 && this.#bySession.get(session) === responses) this.#bySession.delete(session);
    });
    this.#schedule();
  }

  /** Ends all responses of a session. */
  end(session: string): void {
    for (const response of this.#bySession.get(session) ?? []) response.destroy();
  }

  #schedule(): void {
    if (this.#timer !== null || this.#bySession.size === 0) return;
    this.#timer = setTimeout(() => void this.#check(), this.#options.everyMs);
    // The listener closes its connections, which empties the map.
    this.#timer.unref();
  }

  async #check(): Promise<void> {
    const sessions = [...this.#bySession.keys()];
    const valid = await this.#read(sessions);
    for (const session of sessions) if (!valid.has(session)) this.end(session);
    this.#timer = null;
    this.#schedule();
  }

  async #read(sessions: readonly string[]): Promise<ReadonlySet<string>> {
    const { valid, onError, readMs } = this.#options;
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Error("the database did not answer in time")), readMs);
    try {
      return await Promise.race([valid(sessions), late.promise]);
    } catch (error) {
      onError(error);
      return new Set();
    } finally {
      clearTimeout(timer);
    }
  }
}
