/**
 * The database of a simulated world, which all processes share. It locks the accounts of a commit,
 * writes the commit when it is on disk, and loses what is not there yet if it crashes. The answer
 * to a commit can be lost after the commit is on disk.
 */
import type { AccountSnapshot } from "../../src/ledger/balance.ts";
import type { EventSettings } from "../../src/ledger/events.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Decision } from "../../src/ledger/outcomes.ts";
import type { PlanCatalog, Plans } from "../../src/ledger/plan.ts";
import type { PlanChanges } from "../../src/ledger/plan-section.ts";
import { type Times, timesAt } from "../../src/ledger/snapshot.ts";
import type { AccountDraft, DraftOptions, DraftOutcome } from "../../src/store/contacts.ts";
import { type NodeRow, silentMs } from "../../src/store/nodes.ts";
import type { PlansOptions } from "../../src/store/plans.ts";
import { MemoryLedger } from "../fixtures/memory-ledger.ts";
import { type MemoryStore, memoryStore } from "../fixtures/memory-store.ts";
import { DatabaseClock } from "./database-clock.ts";
import type { DatabaseConnection, Reply, TimesOf } from "./program-store.ts";
import type { Random } from "./random.ts";
import { snapshotOf } from "./row-checks.ts";
import type { Owner, Timeline } from "./timeline.ts";

export interface DatabaseFaults {
  /** Probability that a call finds the connection closed, and nothing is done. */
  refused: number;
  /** Probability that the answer to a call is lost. */
  lost: number;
  /** Probability that a commit finds an account locked, which another session then keeps. */
  locked: number;
  /** The overdue holds that a commit ends at most. */
  overdueMax: number;
  /** Usual time of the network in one direction, and of a commit on the disk. */
  networkMs: number;
  diskMs: number;
}

/** A commit that is on disk. */
export interface WrittenCommit {
  operations: readonly Operation[];
  outcomes: readonly Decision[];
  times: Times;
  plans: PlanCatalog;
  /** By account: its rows before the commit. */
  before: ReadonlyMap<string, AccountSnapshot | null>;
}

/** Hears of everything that changes credits. */
export interface DatabaseListener {
  committed(commit: WrittenCommit): void;
  opened(draft: AccountDraft, options: DraftOptions, times: Times): void;
  applied(section: Plans, force: boolean, times: Times, changes: PlanChanges): void;
  /** A call has failed for another reason than a fault of the world. */
  failed(error: unknown): void;
}

/** Only a lost answer repeats them. Clients and operators repeat the other operations, too. */
function isOnce({ kind }: Operation): boolean {
  return kind === "hold" || kind === "settle";
}

export class SimulatedDatabase {
  readonly store: MemoryStore;
  readonly ledger = new MemoryLedger();
  readonly clock: DatabaseClock;
  readonly #timeline: Timeline;
  readonly #random: Random;
  readonly #faults: DatabaseFaults;
  readonly #listener: DatabaseListener;
  /** The end of the last commit that waits for each account. */
  readonly #locks = new Map<string, Promise<void>>();
  /** Commits of an earlier life of the database are lost. */
  #life: Owner = { isGone: false };
  readonly #nodes = new Map<string, NodeRow>();
  /** Of the call that is done, or was done last. */
  #times: Times;
  readonly #lockedUntilMs = new Map<string, number>();
  readonly #answered = new Map<Owner, Set<string>>();

  constructor(options: {
    timeline: Timeline;
    random: Random;
    faults: DatabaseFaults;
    plans: Plans;
    events: EventSettings | null;
    listener: DatabaseListener;
  }) {
    this.#timeline = options.timeline;
    this.#random = options.random;
    this.#faults = options.faults;
    this.#listener = options.listener;
    this.ledger.overdueMax = options.faults.overdueMax;
    this.ledger.eventSettings = options.events;
    this.clock = new DatabaseClock(options.timeline);
    this.#times = timesAt(this.clock.nowMs);
    this.store = memoryStore(options.plans, () => this.#times, this.ledger);
  }

  /** Everything that is not on disk is lost, and all connections break. */
  crash(): void {
    this.#life.isGone = true;
    this.#life = { isGone: false };
    this.#locks.clear();
  }

  connect(owner: Owner): DatabaseConnection {
    return {
      call: (target, method, given, times) =>
        new Promise((resolve) => {
          const sent = structuredClone(given);
          const isCommit = target === "store" && method === "commit";
          if (isCommit) this.#checkNew(owner, sent[0] as Operation[]);
          let isGivenUp = false;
          const answer = (reply: Reply) => {
            const isLost = this.#random.chance(this.#faults.lost);
            const arrives: Reply = isLost ? { error: "unavailable", mayBeDone: true } : reply;
            const arrive = () => {
              if (isCommit && !isGivenUp && "value" in arrives)
                this.#remember(owner, sent[0] as Operation[], arrives.value as Decision[]);
              resolve(arrives);
            };
            this.#timeline.after(this.#random.delay(this.#faults.networkMs), arrive, owner);
          };
          if (this.#random.chance(this.#faults.refused)) {
            this.#timeline.after(1, () => resolve({ error: "unavailable", mayBeDone: false }), owner);
            return;
          }
          this.#timeline.after(this.#random.delay(this.#faults.networkMs), () => {
            const life = this.#life;
            this.#answer(target, method, sent, times).then(
              (reply) => {
                // The process may be gone: what it has sent is done all the same.
                if (!life.isGone) answer(reply);
              },
              (error: unknown) => this.#listener.failed(error),
            );
            // A broken connection is noticed after a while.
            const giveUp = () => {
              isGivenUp = true;
              resolve({ error: "unavailable", mayBeDone: true });
            };
            this.#timeline.after(10_000, giveUp, owner);
          });
        }),
    };
  }

  async #answer(target: string, method: string, given: readonly unknown[], timesOf: TimesOf): Promise<Reply> {
    if (target === "clock") return { value: this.clock.run(method, given) };
    if (target === "store" && method === "commit") {
      return { value: await this.#commit(given[0] as readonly Operation[], timesOf) };
    }
    const objects: Record<string, object> = {
      store: this.store,
      stopRequests: this.store.stopRequests,
      operatorKeys: this.store.operatorKeys,
      dailyCounts: this.store.dailyCounts,
      statements: this.store.statements,
      invitations: this.store.invitations,
      links: this.store.links,
      nodes: this.#registry,
    };
    const object = objects[target];
    const run: unknown = object === undefined ? undefined : Reflect.get(object, method);
    if (typeof run !== "function" || object === undefined)
      throw new Error(`the database has no ${target}.${method}`);
    const times = timesOf(this.clock.nowMs);
    this.#times = times;
    const value: unknown = await Reflect.apply(run, object, given);
    this.#tell(method, given, { value, times });
    return { value: structuredClone(value) };
  }

  #tell(method: string, given: readonly unknown[], { value, times }: { value: unknown; times: Times }): void {
    if (method === "putAccount") {
      const [draft, options] = given as [AccountDraft, DraftOptions];
      const { kind } = value as DraftOutcome;
      if (kind === "opened" || kind === "exists") this.#listener.opened(draft, options, times);
    }
    if (method === "applyPlans") {
      const [section, { force }] = given as [Plans, PlansOptions];
      this.#listener.applied(section, force, times, value as PlanChanges);
    }
  }

  /** Waits for the accounts, decides, and writes when the disk has it. */
  async #commit(operations: readonly Operation[], timesOf: TimesOf): Promise<Decision[]> {
    const life = this.#life;
    const accounts = [...new Set(operations.map(({ account }) => account))].sort();
    const { promise: done, resolve: unlock } = Promise.withResolvers<void>();
    const before = accounts.map((account) => this.#locks.get(account));
    for (const account of accounts) this.#locks.set(account, done);
    try {
      await Promise.all(before);
      const times = timesOf(this.clock.nowMs);
      await this.#pause(this.#random.delay(this.#faults.diskMs), life);
      const plans = await this.store.plans();
      const locked = new Set(accounts.filter((id) => this.#isLocked(id)));
      const free = operations.filter(({ account }) => !locked.has(account));
      const moment = { ledger: this.ledger, plans, times };
      const rows = new Map(accounts.map((id) => [id, snapshotOf(id, moment)]));
      const { outcomes, changes } = this.ledger.decide(free, { plans, times });
      this.ledger.write(changes);
      this.#times = times;
      this.#listener.committed({ operations: free, outcomes, times, plans, before: rows });
      const decided = structuredClone(outcomes);
      return operations.map((operation): Decision => {
        const decision = locked.has(operation.account) ? undefined : decided.shift();
        return decision ?? { kind: "locked" };
      });
    } finally {
      unlock();
    }
  }

  /** Remembers the holds and settlements of a process that it has the answers to. */
  #remember(owner: Owner, operations: readonly Operation[], decisions: readonly Decision[]): void {
    const known = this.#answered.get(owner) ?? new Set();
    this.#answered.set(owner, known);
    for (const [n, operation] of operations.entries()) {
      const kind = decisions[n]?.kind ?? "locked";
      if (isOnce(operation) && kind !== "locked" && kind !== "more_overdue")
        known.add(JSON.stringify(operation));
    }
  }

  /** A process does not send them again. */
  #checkNew(owner: Owner, operations: readonly Operation[]): void {
    const known = this.#answered.get(owner);
    const again = operations.find((operation) => known?.has(JSON.stringify(operation)));
    if (again !== undefined)
      this.#listener.failed(new Error(`${JSON.stringify(again)} is sent again after its answer`));
  }

  /**
   * A stuck session has locked the account, for 18 s at most: an extension that is asked for after
   * a third of a hold's life comes in time. What has waited is decided before another lock.
   */
  #isLocked(account: string): boolean {
    const { nowMs } = this.#timeline;
    const untilMs = this.#lockedUntilMs.get(account) ?? Number.NEGATIVE_INFINITY;
    if (nowMs < untilMs) return true;
    if (nowMs < untilMs + 5000 || !this.#random.chance(this.#faults.locked)) return false;
    this.#lockedUntilMs.set(account, nowMs + this.#random.delay(900));
    return true;
  }

  /** Never resolves if the database crashes before. */
  #pause(ms: number, life: Owner): Promise<void> {
    return new Promise((resolve) => this.#timeline.after(ms, resolve, life));
  }

  readonly #registry = {
    heartbeat: async (self: Pick<NodeRow, "id" | "version" | "fingerprint">): Promise<NodeRow[]> => {
      const { nowMs } = this.clock;
      const startedMs = this.#nodes.get(self.id)?.startedMs ?? nowMs;
      this.#nodes.set(self.id, { ...self, startedMs, seenMs: nowMs });
      return [...this.#nodes.values()].filter(({ seenMs }) => seenMs >= nowMs - silentMs);
    },
    leave: async (id: string): Promise<void> => {
      this.#nodes.delete(id);
    },
  };
}
