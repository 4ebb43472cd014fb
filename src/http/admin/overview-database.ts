/**
 * The part of the overview that the database has, for all processes: usage of the last hours, the
 * requests that other processes answer, accounts with almost no credits, and the last audit.
 *
 * A look waits a short time for the database. After that, it goes on with what the look before has
 * found, so a slow database delays no snapshot.
 */
import { firstAccount, firstKeyId } from "../../accounts/first-account.ts";
import type { AccountOfList, OperatorActions } from "../../accounts/operator-actions.ts";
import { mailEndpoint } from "../../config/events.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { inTime } from "../../retry.ts";
import type { AuditRecord } from "../../store/audit-report.ts";
import type { ListedEndpoint } from "../../store/events.ts";
import { pageRowsMax, type Store } from "../../store/store.ts";
import type { UsageHour } from "../../store/usage-hours.ts";
import { type EpochMs, hourMs } from "../../units.ts";
import type { RunningJson } from "./request-object.ts";

/** Two days, which can be compared. No day has more hours. */
export const hoursShown = 48;
export const nearAccountsMax = 5;
/** Further invitations are not counted. */
const lapsedMax = 100;
/** A look waits this long for the database. */
const lookMsMax = 500;
/** A read of the database that takes longer counts as a failure. */
const readMsMax = 3_000;
/** This list reads all accounts. */
const nearEveryMs = 60_000;

export interface DatabaseView {
  atMs: EpochMs;
  /** The zone of the configuration. */
  timezone: string;
  hours: readonly UsageHour[];
  holds: readonly HoldRow[];
  audit: AuditRecord | null;
}

export interface LowBalance {
  atMs: EpochMs;
  accounts: readonly AccountOfList[];
}

/** The page that shows more of it. */
export const attentionPages = ["health", "events", "accounts"] as const;

export interface Attention {
  text: string;
  page: (typeof attentionPages)[number];
}

interface OverviewDatabaseDependencies {
  store: Pick<
    Store,
    "accounts" | "events" | "holds" | "keysAfter" | "lastAudit" | "plans" | "times" | "usage" | "usageHours"
  >;
  actions: Pick<OperatorActions, "accounts" | "endpoints" | "timezone">;
  /** The requests of this service. */
  requests(): Promise<readonly RunningJson[]>;
  /** Called once for each time in which the database cannot be read. */
  onError(error: unknown): void;
}

export class OverviewDatabase {
  readonly #deps: OverviewDatabaseDependencies;
  /** The last reading. Null before the first one. */
  view: DatabaseView | null = null;
  near: LowBalance | null = null;
  /** What a new service has, apart from models. Null before the database was read. */
  steps: Readonly<Record<"plan" | "account" | "key" | "request", boolean>> | null = null;
  /** Receivers of events that fail. */
  #failing: readonly ListedEndpoint[] = [];
  /** Accounts whose invitation has ended unused. A link lives for a week. */
  #lapsed = 0;
  isReachable = true;
  #reading: Promise<void> | null = null;
  #readingSinceMs = 0;
  #readingNear: Promise<void> | null = null;
  #nearReadMs = Number.NEGATIVE_INFINITY;
  /** Requests of this service at the last read. Their holds are in it, even if they have ended. */
  #ownIds: ReadonlySet<string> = new Set();

  constructor(dependencies: OverviewDatabaseDependencies) {
    this.#deps = dependencies;
  }

  async look(): Promise<void> {
    const nowMs = performance.now();
    if (this.#reading === null) {
      this.#readingSinceMs = nowMs;
      this.#reading = this.#read().finally(() => {
        this.#reading = null;
      });
    }
    if (nowMs - this.#nearReadMs >= nearEveryMs && this.#readingNear === null) {
      this.#nearReadMs = nowMs;
      this.#readingNear = this.#readNear().finally(() => {
        this.#readingNear = null;
      });
    }
    const work = Promise.all([this.#reading, this.near === null ? this.#readingNear : null]);
    // Late work goes on, and reports its errors itself.
    await inTime(work, lookMsMax).catch(() => {});
    if (this.#reading !== null && performance.now() - this.#readingSinceMs > readMsMax) {
      this.isReachable = false;
    }
  }

  /** Holds of requests that this service does not answer. `requests`: those that it answers. */
  elsewhere(requests: readonly RunningJson[]): HoldRow[] {
    const own = new Set(requests.map((each) => each.request_id));
    return (this.view?.holds ?? []).filter(({ id }) => !own.has(id) && !this.#ownIds.has(id));
  }

  /** What the database knows that needs an operator. */
  attention(): Attention[] {
    const { problems = 0 } = this.view?.audit ?? {};
    const lapsed = this.#lapsed === lapsedMax ? `${lapsedMax} or more` : this.#lapsed;
    const invited = `${lapsed === 1 ? "invitation is" : "invitations are"} older than a week, and nobody came.`;
    return [
      ...(problems === 0
        ? []
        : [{ text: "The last recorded audit found broken rules.", page: "health" } as const]),
      ...this.#failing.map(({ name, problem }) => {
        const what = name === mailEndpoint ? "The mail server" : `The receiver ${name}`;
        return { text: `${what} fails: ${problem}.`, page: "events" } as const;
      }),
      ...(lapsed === 0 ? [] : [{ text: `${lapsed} ${invited}`, page: "accounts" } as const]),
    ];
  }

  async #read(): Promise<void> {
    const { store, actions, requests, onError } = this.#deps;
    try {
      const { atMs } = store.times();
      const to = Math.floor(atMs / hourMs) + 1;
      const before = await requests();
      const [hours, holds, audit, steps] = await Promise.all([
        store.usageHours({ from: to - hoursShown, to, byModel: false }),
        store.holds({ limit: pageRowsMax }),
        store.lastAudit(),
        this.#stepsNow(),
      ]);
      this.#ownIds = new Set([...before, ...(await requests())].map((each) => each.request_id));
      this.view = { atMs, timezone: actions.timezone, hours, holds, audit };
      this.steps = steps;
      this.isReachable = true;
    } catch (error) {
      if (this.isReachable) onError(error);
      this.isReachable = false;
    }
  }

  async #stepsNow(): Promise<OverviewDatabase["steps"]> {
    const { store } = this.#deps;
    // Plans may be retired, but accounts, keys and receipts stay.
    if (this.steps !== null && Object.values(this.steps).every((isDone) => isDone)) return this.steps;
    const [plans, accounts, keys, receipts] = await Promise.all([
      store.plans(),
      store.accounts({ limit: 2 }),
      store.keysAfter(null, 2),
      store.usage({ limit: 1 }),
    ]);
    return {
      plan: plans.offered.length > 0,
      // The first start makes one of each, for a try.
      account: accounts.some(({ id }) => id !== firstAccount),
      key: keys.some(({ id }) => id !== firstKeyId),
      request: receipts.length > 0,
    };
  }

  async #readNear(): Promise<void> {
    const { store, actions, onError } = this.#deps;
    try {
      const { atMs } = store.times();
      const endpoints = await store.events.endpoints(actions.endpoints());
      this.#failing = endpoints.filter(({ failing }) => failing > 0);
      const waiting = await actions.accounts({ hasNotCome: true, limit: lapsedMax });
      this.#lapsed = waiting.filter(({ invitation }) => invitation === "lapsed").length;
      const query = { hasLowBalance: true, order: "remaining", limit: nearAccountsMax } as const;
      this.near = { atMs, accounts: await actions.accounts(query) };
    } catch (error) {
      // Too many accounts to list in time, or the database is away.
      onError(error);
    }
  }
}
