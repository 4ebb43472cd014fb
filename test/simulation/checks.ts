/**
 * Checks of a simulated world. Each must hold at any time. The naive ledger gets every
 * commit that is on disk, in the same order, and must agree about outcomes and rows.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { EventSettings } from "../../src/ledger/events.ts";
import { amountOf, inSpendingOrder } from "../../src/ledger/grants.ts";
import type { Plans } from "../../src/ledger/plan.ts";
import type { PlanChanges } from "../../src/ledger/plan-section.ts";
import { rowKey, type Times, timesAt } from "../../src/ledger/snapshot.ts";
import { type AccountDraft, type DraftOptions, operationsOf } from "../../src/store/contacts.ts";
import { caseOf, withoutRates } from "../fixtures/ledger-drafts.ts";
import type { MemoryLedger } from "../fixtures/memory-ledger.ts";
import { naiveEvents, naiveLineOf } from "../fixtures/naive-events.ts";
import { NaiveLedger } from "../fixtures/naive-ledger.ts";
import { additionalIn, comparable, rowOf } from "../fixtures/naive-rows.ts";
import { checkAudit, checkDamages } from "./damage-checks.ts";
import type { SimulatedDatabase, WrittenCommit } from "./database.ts";
import { LowCaps } from "./low-caps.ts";
import type { Random } from "./random.ts";
import {
  applyPreviewed,
  checkAccount,
  checkCharges,
  checkPayments,
  checkRates,
  type Moment,
} from "./row-checks.ts";

export class Checks {
  readonly #naive: NaiveLedger;
  readonly #isTruthful: boolean;
  readonly #lowCaps = new LowCaps();
  /** By request: the accounts of its charges, of the first `#chargesRead` ones. */
  readonly #payers = new Map<string, Set<string>>();
  #chargesRead = 0;
  readonly #trace = createHash("sha256");
  /** How often each outcome was seen. */
  readonly outcomes = new Map<string, number>();
  commits = 0;

  /** `isTruthful`: the servers report the usage that they had. */
  constructor(
    plans: Plans,
    { startMs, isTruthful, overdueMax }: { startMs: number; isTruthful: boolean; overdueMax: number },
  ) {
    this.#isTruthful = isTruthful;
    this.#naive = new NaiveLedger(plans, overdueMax, timesAt(startMs));
  }

  /** Adds a fact to the trace, which is the same for the same seed. */
  note(fact: string): void {
    this.#trace.update(fact).update("\n");
  }

  digest(): string {
    return this.#trace.digest("hex").slice(0, 16);
  }

  count(outcome: string): void {
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
  }

  applied(section: Plans, force: boolean, times: Times, { versions: _, ...changes }: PlanChanges): void {
    assert.deepEqual(changes, this.#naive.applyPlans(section, force, times), "a plans section");
    this.count(`plans ${changes.kind}`);
  }

  /** An account that was opened with its contact. */
  opened(draft: AccountDraft, options: DraftOptions, times: Times): void {
    const operations = operationsOf(draft, options);
    this.#naive.begin(operations, times);
    for (const operation of operations) this.#naive.apply(operation);
  }

  committed(commit: WrittenCommit, { ledger }: SimulatedDatabase): void {
    const { operations, outcomes, times, plans, before } = commit;
    this.commits += 1;
    this.#naive.begin(operations, times);
    const touched = new Set<string>();
    const accounts = new Set(operations.map(({ account }) => account));
    this.#lowCaps.begin(this.#naive, accounts, times.atMs);
    for (const [n, operation] of operations.entries()) {
      const outcome = outcomes[n];
      assert.ok(outcome !== undefined, "each operation has an outcome");
      const isPreviewed = operation.kind === "plan" && !touched.has(operation.account);
      const {
        mayBeReserved: _,
        isReserved = false,
        ...expected
      } = isPreviewed
        ? applyPreviewed(this.#naive, operation, before.get(operation.account) ?? null)
        : this.#naive.apply(operation);
      touched.add(operation.account);
      if (ledger.eventSettings !== null) {
        const { thresholdPercents } = ledger.eventSettings;
        this.#lowCaps.look(this.#naive, operation, { atMs: times.atMs, percents: thresholdPercents });
      }
      const { reserved, ...found } = withoutRates(outcome);
      assert.deepEqual(found, expected, `outcome of ${JSON.stringify(operation)}`);
      assert.equal(reserved === true, isReserved, `credits are reserved for ${JSON.stringify(operation)}`);
      checkRates(this.#naive, operation, outcome);
      this.count(`${operation.kind} ${caseOf(outcome)}`);
      this.note(`${times.nowMs} ${JSON.stringify(operation)} ${caseOf(outcome)}`);
    }
    this.#lowCaps.check(ledger.events);
    for (const id of touched) {
      this.#compare(id, ledger);
      checkAccount(this.#naive, id, { ledger, plans, times });
    }
    for (const operation of operations)
      if (operation.kind === "settle" || operation.kind === "stop" || operation.kind === "expire")
        checkCharges(this.#naive, operation.account, operation.requestId, ledger);
  }

  #compare(id: string, ledger: MemoryLedger): void {
    const naive = this.#naive.accounts.get(id);
    const account = ledger.accounts.get(id);
    assert.equal(account === undefined, naive === undefined, `account ${id} exists`);
    if (naive === undefined || account === undefined) return;
    assert.partialDeepStrictEqual(comparable(account), rowOf(naive), `account ${id}`);
    const later = account.later.count === 0 ? [] : (ledger.later.get(id) ?? []);
    const additional = [...account.additional, ...later.toSorted(inSpendingOrder)];
    assert.partialDeepStrictEqual(additional, additionalIn(naive), `additional grants of ${id}`);
    for (const grant of [account.base, account.overage, ...additional]) {
      if (grant === null) continue;
      const { amountMicro, spentMicro, heldMicro } = grant;
      assert.ok(amountMicro >= 0 && spentMicro >= 0 && heldMicro >= 0, `grant ${grant.seq} of ${id}`);
    }
  }

  /** Returns the accounts with a hold or a charge of a request. */
  payersOf({ ledger }: SimulatedDatabase, requestId: string | undefined): string[] {
    // Charges are only added, and each part of each answer asks for them.
    for (const { id, account } of ledger.charges.slice(this.#chargesRead))
      this.#payers.set(id, (this.#payers.get(id) ?? new Set()).add(account));
    this.#chargesRead = ledger.charges.length;
    const holds = [...ledger.holds.values()].filter(({ id }) => id === requestId);
    const charged = this.#payers.get(requestId ?? "") ?? [];
    return [...new Set([...holds.map(({ account }) => account), ...charged])];
  }

  /**
   * A client has received so many tokens of an answer. They are paid for: an open hold has taken
   * their price, or the charge has them.
   */
  received(database: SimulatedDatabase, { requestId, tokens, priceMicro }: ReceivedTokens): void {
    const { ledger } = database;
    const [account = ""] = this.payersOf(database, requestId);
    const key = rowKey(account, requestId);
    const hold = ledger.holds.get(key);
    if (hold !== undefined) {
      const held = amountOf(hold.takings);
      assert.ok(held >= tokens * priceMicro, `${tokens} tokens of ${requestId} were sent with ${held} held`);
      return;
    }
    const charges = ledger.chargesOf(account, requestId);
    assert.ok(charges.length > 0, `${requestId} has neither a hold nor a charge`);
    // A process that dies loses at most what it generated since its checkpoint.
    if (!this.#isTruthful || charges.some(({ ending }) => ending === "expired" || ending === "stopped"))
      return;
    const charged = charges.reduce((sum, { completionTokens }) => sum + completionTokens, 0);
    assert.ok(charged >= tokens, `${tokens} tokens of ${requestId} were sent, and ${charged} charged`);
  }

  /** An account as it is now, and with changes by hand. */
  tampered(id: string, moment: Moment, random: Random): void {
    const row = moment.ledger.accounts.get(id);
    if (row !== undefined) checkDamages(row, moment);
    checkAudit(id, moment, random);
  }

  /** All rows, by the audit that operators run. */
  everything({ ledger, store }: SimulatedDatabase): void {
    assert.deepEqual(store.audit().broken, [], "the audit");
    for (const { account, hold } of this.#naive.requests.values())
      checkCharges(this.#naive, account, hold.id, ledger);
    for (const id of this.#naive.accounts.keys()) checkPayments(this.#naive, id, ledger);
    if (ledger.eventSettings !== null) checkEvents(ledger, ledger.eventSettings);
  }
}

/** The events are those that follow from the facts, each once. */
function checkEvents(ledger: MemoryLedger, { thresholdPercents }: EventSettings): void {
  const texts = ledger.events.map((event) => JSON.stringify(event));
  assert.equal(new Set(texts).size, texts.length, "each event is written once");
  const linesOf = Map.groupBy(ledger.events, ({ account }) => account);
  for (const id of ledger.accounts.keys()) {
    const lines = (linesOf.get(id) ?? []).flatMap(({ type, data }) => naiveLineOf(type, data) ?? []);
    assert.deepEqual(lines.sort(), naiveEvents(ledger, id, thresholdPercents), `events of ${id}`);
  }
}

export interface ReceivedTokens {
  requestId: string;
  tokens: number;
  /** Price of a completion token. */
  priceMicro: number;
}
