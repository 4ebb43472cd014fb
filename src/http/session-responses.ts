/**
 * Ends the responses that are under way for a session when the session ends: streams, downloads,
 * and long operations, whose answer is lost.
 *
 * A session that ends on another node is noticed within `everyMs` and the time of one read. If the
 * database does not answer, the responses end too: nothing shows that their session is valid.
 */
import type { ServerResponse } from "node:http";
import type { Job } from "../job.ts";
import type { Jobs } from "../jobs.ts";
import { inTime } from "../retry.ts";

interface SessionResponsesOptions {
  jobs: Jobs;
  /** Name of its job. */
  name: string;
  /** Returns which of the sessions have not ended. */
  valid(sessions: readonly string[]): Promise<ReadonlySet<string>>;
}

const everyMs = 400;
/** Time limit of one read. */
const readMs = 5_000;

export class SessionResponses {
  readonly #valid: SessionResponsesOptions["valid"];
  readonly #job: Job;
  readonly #bySession = new Map<string, Set<ServerResponse>>();

  constructor({ jobs, name, valid }: SessionResponsesOptions) {
    this.#valid = valid;
    this.#job = jobs.start({
      name,
      everyMs,
      failure: "sessions could not be read, so responses to them are ended",
      isIdle: () => this.#bySession.size === 0,
      run: () => this.#check(),
    });
  }

  /** Ends the response if the session ends before it. */
  add(session: string, response: ServerResponse): void {
    const responses = this.#bySession.getOrInsertComputed(session, () => new Set()).add(response);
    this.#job.wake();
    response.once("close", () => {
      responses.delete(response);
      if (responses.size === 0 && this.#bySession.get(session) === responses) this.#bySession.delete(session);
    });
  }

  /** Ends all responses of a session. */
  end(session: string): void {
    for (const response of this.#bySession.get(session) ?? []) response.destroy();
  }

  async #check(): Promise<void> {
    const sessions = [...this.#bySession.keys()];
    if (sessions.length === 0) return;
    let valid: ReadonlySet<string> = new Set();
    try {
      valid = await inTime(this.#valid(sessions), readMs);
    } finally {
      for (const session of sessions) if (!valid.has(session)) this.end(session);
    }
  }
}
