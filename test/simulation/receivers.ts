/**
 * The receivers of events in a simulated world, in place of undici's connections. They take
 * events, fail, hang, refuse, lie, and lose answers.
 *
 * Checks that each event is in the ledger and keeps its id and its text. Events of an account come
 * in their order, the next one after the one before was taken, and from one process at a time.
 */
import assert from "node:assert/strict";
import type { EventsConfig } from "../../src/config/events.ts";
import { keptMs } from "../../src/events/event-sending.ts";
import type { EventFact } from "../../src/ledger/events.ts";
import type { EventStore } from "../../src/store/events.ts";
import type { MemoryLedger } from "../fixtures/memory-ledger.ts";
import type { DatabaseClock } from "./database-clock.ts";
import type { Random } from "./random.ts";
import type { Owner, Timeline } from "./timeline.ts";

export const receiverOrigin = "http://receiver";

/** How a receiver answers, with how often. */
const habits = {
  /** All is taken, and answered with 2xx. */
  good: { takes: 1 },
  failing: { takes: 20, fails: 3, losesAnswer: 2, hangs: 1, refusesConnection: 1 },
  odd: { takes: 20, lies: 10, refuses: 3, redirects: 1, losesAnswer: 2 },
};
type Habit = keyof (typeof habits)["failing"] | keyof (typeof habits)["odd"];

export interface ReceivedRequest {
  path: string;
  headers: Record<string, string>;
  body: string;
  signal: AbortSignal;
}

interface Response {
  statusCode: number;
  headers: Record<string, string>;
  body: AsyncIterable<Uint8Array>;
}

/** What became of the events of an endpoint. */
interface Endpoint {
  types: ReadonlySet<string>;
  /** By id: the text. */
  texts: Map<string, string>;
  ids: Map<string, string>;
  /** Texts that were answered with 2xx. */
  taken: Set<string>;
  /** By account: the processes of requests that have no answer yet. */
  senders: Map<string, Set<Owner>>;
  /** Events of this type are always refused. */
  refusedType: string;
}

export interface ReceiversWorld {
  timeline: Timeline;
  random: Random;
  events: EventsConfig | null;
  /** Receivers fail, lie and lose answers. */
  hasTrouble: boolean;
  database: { clock: DatabaseClock; ledger: MemoryLedger; store: { events: EventStore } };
  fail(error: unknown): void;
  count(outcome: string): void;
}

export class SimulatedReceivers {
  readonly #world: ReceiversWorld;
  readonly #habits: Readonly<Record<string, number>>;
  readonly #endpoints: ReadonlyMap<string, Endpoint>;
  #isWell = false;

  constructor(world: ReceiversWorld) {
    const { random, events, hasTrouble } = world;
    this.#world = world;
    const drawn = random.pick([habits.good, habits.failing, habits.odd]);
    this.#habits = hasTrouble ? drawn : habits.good;
    const refusedType = random.pick(["none", "payment.added", "account.suspended"]);
    this.#endpoints = new Map(
      (events?.endpoints ?? []).map(({ name, types }) => [
        name,
        {
          types: new Set<string>(types),
          texts: new Map(),
          ids: new Map(),
          taken: new Set(),
          senders: new Map(),
          refusedType: hasTrouble ? refusedType : "none",
        },
      ]),
    );
  }

  get names(): string[] {
    return [...this.#endpoints.keys()];
  }

  /** From now on everything is taken. */
  recover(): void {
    this.#isWell = true;
  }

  /** A request of a process. It arrives although the process may be gone by then. */
  async request({ path, headers, body, signal }: ReceivedRequest, owner: Owner): Promise<Response> {
    const { timeline, random, fail } = this.#world;
    const name = path.slice(1);
    const id = headers["webhook-id"] ?? "";
    const endpoint = this.#endpoints.get(name);
    if (endpoint === undefined) throw new Error(`there is no receiver ${path}`);
    const account = String(JSON.parse(body).data.account ?? "");
    const senders = endpoint.senders.get(account) ?? new Set();
    endpoint.senders.set(account, senders);
    // Of one process, the one before has had its answer.
    if ([...senders].some((other) => !other.isGone))
      fail(new Error(`two events of "${account}" are sent to ${name} at the same time`));
    senders.add(owner);
    try {
      return await new Promise<Response>((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        const lose = () => reject(Object.assign(new Error("other side closed"), { code: "UND_ERR_SOCKET" }));
        const habit = this.#habit();
        const arrive = async () => {
          this.#arrived(endpoint, { id, body });
          const answer = this.#answerOf(habit, body, endpoint);
          if (answer === null) return;
          const end = () => {
            if (answer.statusCode < 300) endpoint.taken.add(body);
            resolve(answer);
          };
          timeline.after(random.delay(10), habit === "losesAnswer" ? lose : end, owner);
        };
        if (habit === "refusesConnection") timeline.after(random.delay(10), lose, owner);
        else timeline.after(random.delay(10), () => void arrive().catch(fail));
      });
    } finally {
      senders.delete(owner);
    }
  }

  /** Null: there is no answer. */
  #answerOf(habit: Habit, body: string, { refusedType }: Endpoint): Response | null {
    const { random, count } = this.#world;
    const isRefused = !this.#isWell && JSON.parse(body).type === refusedType;
    count(`event ${isRefused ? "refuses always" : habit}`);
    const statusCode = isRefused ? 422 : this.#statusOf(habit);
    if (statusCode === null) return null;
    const headers: Record<string, string> = random.chance(0.3) ? { "retry-after": "3" } : {};
    return { statusCode, headers, body: textOf(habit) };
  }

  #habit(): Habit {
    return this.#isWell ? "takes" : (this.#world.random.weighted(this.#habits) as Habit);
  }

  /** Null: there is no answer. */
  #statusOf(habit: Habit): number | null {
    const { random } = this.#world;
    switch (habit) {
      case "fails":
        return random.pick([500, 503, 429]);
      case "refuses":
        return 400;
      case "redirects":
        return 302;
      case "hangs":
        return null;
      default:
        return random.pick([200, 204]);
    }
  }

  #arrived(endpoint: Endpoint, { id, body }: { id: string; body: string }): void {
    const { texts, ids } = endpoint;
    assert.match(id, /^evt_\w+$/, "an event has an id");
    assert.equal(texts.get(id) ?? body, body, `the event ${id} has one text`);
    assert.equal(ids.get(body) ?? id, id, `${body} has one id`);
    const isFirst = !texts.has(id);
    texts.set(id, body);
    ids.set(body, id);
    const { type, data } = JSON.parse(body);
    // The others are not about an account, or do not come from the ledger.
    if (!isFirst || data.account === undefined || type === "key.expiring") return;
    const { events } = this.#world.database.ledger;
    const all = events.filter(({ account, type }) => account === data.account && endpoint.types.has(type));
    const at = all.findIndex((event) => textOfEvent(event) === body);
    assert.ok(at !== -1, `${body} is an event of the ledger that this endpoint wants`);
    const missing = this.#missing(endpoint, all.slice(0, at));
    assert.deepEqual(missing, [], `${body} comes before earlier events of its account`);
  }

  async isDone(): Promise<boolean> {
    const rows = await this.#world.database.store.events.endpoints(this.names.map((name) => ({ name })));
    return rows.every(({ pending }) => pending === 0) && this.#allMissing().length === 0;
  }

  /** At the end, each event has arrived everywhere. */
  checkArrived(): void {
    assert.deepEqual(this.#allMissing(), [], "each event arrives");
  }

  #allMissing(): string[] {
    const { events } = this.#world.database.ledger;
    return [...this.#endpoints].flatMap(([name, endpoint]) =>
      this.#missing(endpoint, events).map((text) => `${name}: ${text}`),
    );
  }

  /**
   * The texts of the events that this endpoint wants and has not taken. Some may be so old that
   * they were deleted before they were sent: a clock was set far forward.
   */
  #missing({ types, taken }: Endpoint, events: readonly EventFact[]): string[] {
    const { row } = this.#world.database.clock;
    return events
      .filter(({ type, atMs }) => types.has(type) && atMs > row.ledgerMs - keptMs)
      .map(textOfEvent)
      .filter((text) => !taken.has(text));
  }
}

function textOfEvent({ account, seq, atMs, type, data }: EventFact): string {
  const timestamp = new Date(atMs).toISOString();
  return JSON.stringify({ type, timestamp, data: { account, number: seq, ...data } });
}

/** Only 4 KiB of it are read. A liar sends more, or breaks off. */
async function* textOf(habit: Habit): AsyncGenerator<Uint8Array> {
  const part = Buffer.from("taken ".repeat(100));
  for (let n = 0; n < (habit === "lies" ? 1000 : 1); n += 1) {
    yield part;
    if (habit === "lies" && n === 30) throw new Error("other side closed");
  }
}
