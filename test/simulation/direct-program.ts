/**
 * A program that sends operations of all kinds to the database of a world, on accounts of its own.
 * Many of them are rare among those of clients and operators: they have wrong ids, come in a wrong
 * order, or are repeated. The program also applies plans sections.
 */

import fc from "fast-check";
import { newKeyOf } from "../../src/ledger/key-facts.ts";
import type { Operation } from "../../src/ledger/operations.ts";
import type { Plans } from "../../src/ledger/plan.ts";
import { noTokens } from "../../src/ledger/rows.ts";
import {
  configurations,
  openingKeys,
  openings,
  operationOf,
  stepArb,
  type Told,
} from "../fixtures/ledger-drafts.ts";
import { credits } from "../fixtures/ledger-rows.ts";
import { minute, second } from "../fixtures/times.ts";
import type { SimulatedDatabase } from "./database.ts";
import type { Random } from "./random.ts";
import type { Timeline } from "./timeline.ts";

const by = "program";
/** A call whose answer is lost is repeated so often. */
const attemptsMax = 20;

export class DirectProgram {
  readonly #timeline: Timeline;
  readonly #database: SimulatedDatabase;
  readonly #random: Random;
  readonly #sections: readonly Plans[];
  readonly #told: Told;

  /** `plans`: the section of the configuration, which is applied again now and then. */
  constructor({ timeline, database, random, plans }: DirectProgramOptions) {
    this.#timeline = timeline;
    this.#database = database;
    this.#random = random;
    this.#sections = [plans, plans, ...configurations];
    this.#told = {
      operations: [],
      holds: [],
      payments: [],
      grantsOf: (account) => database.ledger.accounts.get(account)?.additional.map(({ seq }) => seq) ?? [],
    };
  }

  /** Runs until `isOver`, with pauses of about `pauseMs`. Ends its holds. */
  async run(isOver: () => boolean, pauseMs: number): Promise<void> {
    await this.#commit(openings);
    for (const key of openingKeys) {
      const { id, account } = key;
      const issue = { kind: "issue", account, key: id, row: newKeyOf(key), by } as const;
      await this.#commit([{ ...issue, caps: [], keysMax: null, creator: null }]);
    }
    const steps = fc.sample(stepArb, { seed: this.#random.whole(0, 1_000_000), numRuns: 100 });
    for (let n = 0; !isOver(); n += 1) {
      await this.#timeline.pause(this.#random.next() * 2 * pauseMs);
      const step = steps[n % steps.length];
      if (step === undefined) return;
      const options = { force: true, by: "test" };
      if (step.configures) await this.#call("applyPlans", [this.#random.pick(this.#sections), options]);
      const { nowMs } = this.#database.store.times();
      const batch = step.drafts.map((draft) => operationOf(draft, this.#told, nowMs));
      this.#told.operations.push(...batch);
      await this.#commit(batch);
      if (n % 20 === 10) await this.#commit(this.#smallChange(n));
      if (n % 10 === 5) await this.#commit(this.#tightCap(n));
    }
    const { holds } = this.#database.ledger;
    const own = new Set(this.#told.holds.map(({ requestId }) => requestId));
    const left = [...holds.values()].filter(({ id }) => own.has(id));
    await this.#commit(
      left.map(({ account, id: requestId }): Operation => ({ kind: "stop", account, requestId, by })),
    );
    await this.#commit(this.#afterTheEnd());
  }

  /** A closed account gets no payment. */
  #afterTheEnd(): Operation[] {
    const account = this.#random.pick(["ada", "bob"]);
    return [
      { kind: "state", account, op: "the end", to: { kind: "close" }, by },
      { kind: "topup", account, payment: "after the end", amountMicro: credits(1), by },
    ];
  }

  /** More payments than the row of an account has grants. Some of them are refunded as a whole. */
  #smallChange(n: number): Operation[] {
    const account = this.#random.pick(["ada", "bob"]);
    const payments = Array.from({ length: 24 }, (_, at) => ({
      payment: `small-${n}-${at}`,
      amountMicro: this.#random.whole(1, 3),
    }));
    const refunded = payments.filter(() => this.#random.chance(0.3));
    return [
      ...payments.map((paid): Operation => ({ kind: "topup", account, ...paid, by })),
      ...refunded.map((paid): Operation => {
        return { kind: "refund", account, refund: paid.payment, ...paid, by };
      }),
    ];
  }

  /**
   * Two requests of a key share what is left of its cap. The first has used a part of its hold,
   * or all of it. The second wants more than is left.
   */
  #tightCap(n: number): Operation[] {
    const [account, key] = this.#random.pick([["ada", "ada-1"] as const, ["bob", "bob-1"] as const]);
    const { running = [], counters = [] } = this.#database.ledger.keys.get(key) ?? {};
    const spentMicro = counters.find(({ name }) => name === "tight")?.spentMicro ?? 0;
    const heldMicro = running.reduce((sum, each) => sum + each.heldMicro, 0);
    const amountMicro = spentMicro + heldMicro + credits(10);
    const caps = [{ name: "tight", amountMicro, every: "P1D", byOperator: true }];
    const price = { prompt: 0, completion: credits(1) };
    const hold = (requestId: string, most: number): Operation => {
      this.#told.holds.push({ account, requestId });
      const wantMicro = credits(most);
      const asked = { minMicro: 1, wantMicro, promptTokens: 0, ttlMs: 10 * minute };
      return { kind: "hold", account, requestId, key, model: "model", price, ...asked };
    };
    const usage = { ...noTokens, completionTokens: this.#random.pick([2, 6]) };
    const [one, other] = [`tight-${n}-1`, `tight-${n}-2`];
    return [
      { kind: "key", account, key, op: `tight-${n}`, set: { caps }, by },
      hold(one, 6),
      { kind: "extend", account, requestId: one, n: 1, moreMicro: 0, usage, ttlMs: 10 * minute },
      hold(other, 8),
    ];
  }

  async #commit(operations: readonly Operation[]): Promise<void> {
    let left = operations;
    // The database decides those of a locked account later.
    while (left.length > 0) {
      const decisions = (await this.#call("commit", [left])) as { kind: string }[];
      left = left.filter((_, n) => ["locked", "more_overdue"].includes(decisions[n]?.kind ?? ""));
    }
  }

  async #call(method: string, given: readonly unknown[]): Promise<unknown> {
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      // It repeats operations on purpose, so each call is one of another process.
      const connection = this.#database.connect({ isGone: false });
      const reply = await connection.call("store", method, given, () => this.#database.store.times());
      if ("value" in reply) return reply.value;
      await this.#timeline.pause(second);
    }
    throw new Error(`the database does not answer ${method} for ${attemptsMax} times`);
  }
}

export interface DirectProgramOptions {
  timeline: Timeline;
  database: SimulatedDatabase;
  random: Random;
  plans: Plans;
}

/** Usual pause between its commits. */
export const pauseOfProgramMs = 2 * minute;
