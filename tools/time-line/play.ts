/**
 * Plays a history on the kernel of the ledger, from the opening of the account on, and records
 * each commit and the balance of each quarter of an hour.
 *
 * Guarantees that the kernel alone decides: this file sends operations, and reads rows.
 */
import { type BalanceView, balanceOf, workOn } from "../../src/ledger/balance.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Decision } from "../../src/ledger/outcomes.ts";
import type {
  AccountRow,
  AdditionalGrant,
  ChargeRow,
  GrantRow,
  HoldRow,
  JournalRow,
} from "../../src/ledger/rows.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { microOf } from "../../src/units.ts";
import { MemoryLedger } from "../../test/fixtures/memory-ledger.ts";
import { Answer, type Run } from "./answer.ts";
import { type NamedEvent, quartersMax } from "./history.ts";
import { accountId, firstKey, msAt, plans } from "./world.ts";

/** An operation with its outcome, and the facts that its commit has added. */
export interface Commit {
  at: number;
  /** The id of the event that sent it. Null: the opening. */
  event: string | null;
  operation: Operation;
  outcome: Decision;
  journal: readonly JournalRow[];
  charges: readonly ChargeRow[];
}

/** The account at a quarter, after the commits of that time. */
export interface Sample {
  view: BalanceView;
  account: AccountRow;
  additional: readonly AdditionalGrant[];
  holds: readonly HoldRow[];
  /** Number of the last fact. A window that begins later has no fact yet. */
  seq: number;
}

export interface Played {
  commits: readonly Commit[];
  /** One for each quarter, and one for the end of the time line. */
  samples: readonly Sample[];
  /** By the ids of the requests. */
  runs: ReadonlyMap<string, Run>;
  grants: readonly GrantRow[];
  charges: readonly ChargeRow[];
}

export function play(events: readonly NamedEvent[]): Played {
  const player = new Player();
  const samples: Sample[] = [];
  for (let at = 0; at <= quartersMax; at += 1) {
    player.advance(at);
    for (const event of events) if (event.at === at) player.start(event);
    samples.push(player.sample(at));
  }
  const { grants, charges } = player.ledger;
  return { commits: player.commits, samples, runs: player.runs(), grants, charges };
}

class Player {
  readonly ledger = new MemoryLedger();
  readonly commits: Commit[] = [];
  readonly #answers = new Map<string, Answer>();

  constructor() {
    const operation = { kind: "open", account: accountId, plan: "small", firstKey, by: "reader" } as const;
    this.#commit(0, null, operation);
  }

  /** Ends what is overdue, and lets each answer make its tokens. */
  advance(at: number): void {
    for (const { id, expiresMs } of [...this.ledger.holds.values()]) {
      if (expiresMs > msAt(at)) continue;
      this.#commit(at, id, { kind: "expire", account: accountId, requestId: id });
      const run = this.#answers.get(id)?.run;
      if (run !== undefined) run.expiredAt = at;
    }
    for (const answer of this.#answers.values()) {
      const operation = answer.isRunning ? answer.next(at) : null;
      if (operation?.kind === "settle") this.#settle(at, answer, operation);
      if (operation?.kind !== "extend") continue;
      const last = answer.extended(operation, this.#commit(at, answer.id, operation), at);
      if (last !== null) this.#settle(at, answer, last);
    }
  }

  start(event: NamedEvent): void {
    const { at, id } = event;
    const recorded = { account: accountId, by: "reader" };
    switch (event.kind) {
      case "request": {
        const answer = new Answer(id, event.length);
        this.#answers.set(id, answer);
        const operation = answer.hold();
        answer.held(operation, this.#commit(at, id, operation), at);
        return;
      }
      case "crash":
        for (const answer of this.#answers.values()) if (answer.isRunning) answer.end("died", at);
        return;
      case "plan":
        this.#commit(at, id, { kind: "plan", op: id, plan: event.plan, at: event.when, ...recorded });
        return;
      case "payment": {
        const amountMicro = microOf(event.credits);
        this.#commit(at, id, { kind: "topup", payment: id, amountMicro, ...recorded });
        return;
      }
      case "refund": {
        const payment = `payment-${event.payment}`;
        const amountMicro = microOf(event.credits);
        this.#commit(at, id, { kind: "refund", refund: id, payment, amountMicro, ...recorded });
        return;
      }
      case "promotion": {
        const untilMs = event.length === null ? null : msAt(at + event.length);
        const given = { amountMicro: microOf(event.credits), untilMs, reason: event.title, requestId: null };
        this.#commit(at, id, { kind: "promote", op: id, ...given, ...recorded });
      }
    }
  }

  /** Reads the balance, which writes nothing. */
  sample(at: number): Sample {
    const account = this.ledger.accounts.get(accountId);
    if (account === undefined) throw new Error("the account is open");
    const later = this.ledger.later.get(accountId) ?? [];
    const snapshot = { account, problem: null, overdue: [], later, times: timesAt(msAt(at)), plans };
    const { found } = workOn(snapshot);
    if (found.kind !== "found") throw new Error(found.problem);
    return {
      view: balanceOf(snapshot),
      account: found.account,
      additional: [...found.account.additional, ...(found.grants.later ?? [])],
      holds: [...this.ledger.holds.values()],
      seq: account.seq,
    };
  }

  runs(): ReadonlyMap<string, Run> {
    return new Map([...this.#answers].map(([id, { run }]) => [id, run]));
  }

  #settle(at: number, answer: Answer, operation: Operation & { kind: "settle" }): void {
    this.#commit(at, answer.id, operation);
    answer.end(operation.ending === "stop" ? "stop" : "credits", at);
  }

  #commit(at: number, event: string | null, operation: Operation): Decision {
    const { journal, charges } = this.ledger;
    const [entries, charged] = [journal.length, charges.length];
    const [outcome] = this.ledger.commit([operation], { plans, times: timesAt(msAt(at)) });
    if (outcome === undefined) throw new Error("a commit has an outcome for each operation");
    this.commits.push({
      ...{ at, event, operation, outcome },
      ...{ journal: journal.slice(entries), charges: charges.slice(charged) },
    });
    return outcome;
  }
}
