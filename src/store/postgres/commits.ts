/**
 * One commit of the ledger on PostgreSQL: lock, read the rows of the operations, let the kernel
 * decide, write.
 *
 * Guarantees that a batch is written completely or not at all. The clock is the database's own, so
 * all nodes use the same one, and it is read under the locks. If this node does not believe it,
 * its trusted time counts (clock.ts). Accounts are locked and opened in the order of their ids, so
 * that two commits never wait for each other. An account with a row that another session keeps
 * locked is answered `locked`, and the others are decided. Transient errors are a
 * `StoreUnavailableError`. If the answer to `commit` is lost, a retry finds the finished
 * operations by their ids.
 *
 * A commit usually takes two round trips: lock and read are sent together, and so are write and
 * commit. Late settlements, overdue holds and changed plans need a further read.
 * The server runs one statement after another, each with its own snapshot (read committed), so
 * reads see the rows that the locks waited for. After an error it skips the rest and rolls back.
 * Only the kernel decides about credits.
 *
 * | attempts are repeated by | because of | at most |
 * |---|---|---|
 * | `Ledger` (ledger/ledger.ts) | a `StoreUnavailableError` | 7 times in 15 s, with its wait |
 * | `AccountQueues` (ledger/) | the answer `locked` | for 15 s, with its wait |
 * | `PostgresCommits.commit` | an account or payment that another node just wrote | 2 times |
 * | `#withoutLocked` | a lock timeout; it then skips locked accounts | once |
 */

import { invariant, withNothingDone } from "../../errors.ts";
import type { EventSettings } from "../../ledger/events.ts";
import { decide } from "../../ledger/kernel.ts";
import { LaterNeeded } from "../../ledger/open-grants.ts";
import type { Operation } from "../../ledger/operations.ts";
import type { Decision } from "../../ledger/outcomes.ts";
import type { PlanCatalog } from "../../ledger/plan.ts";
import type { AdditionalGrant } from "../../ledger/rows.ts";
import { type Changes, overdueMax, rowKey, type Snapshot } from "../../ledger/snapshot.ts";
import type { AccountDraft, DraftOptions, DraftOutcome } from "../contacts.ts";
import { operationsOf, planDraft } from "../contacts.ts";
import { eventRow } from "../events.ts";
import { laterChanges } from "../later-grants.ts";
import { foundSeatOf, seatReads, seatStatements } from "../link-queries.ts";
import { readCatalog } from "../plans.ts";
import {
  accountTable,
  chargeTable,
  eventTable,
  grantTable,
  holdKeyTable,
  holdTable,
  journalTable,
  keyStateTable,
  keyTable,
  laterGrantKeyTable,
  laterGrantTable,
} from "../tables.ts";
import type { CommitClock } from "./clock.ts";
import { type Connection, type Connections, rollBack } from "./connection-pool.ts";
import { contactStatements, readContacts } from "./contacts.ts";
import { doubledIn, isLockTimeout } from "./errors.ts";
import type { Statement } from "./exchange.ts";
import { readLaterGrants, readUnderLock, together } from "./read-under-lock.ts";
import { postgresWords } from "./reads.ts";
import { deletion, insertInto, update } from "./writing.ts";

/**
 * A violation of one of these indexes means that another node has just opened the account, or
 * given the payment or the external id to another account. The next attempt finds it.
 */
const sharedIndexes: ReadonlySet<string | null> = new Set([
  "account_pkey",
  "credit_grant_payment_key",
  "journal_op_key",
  "account_contact_pkey",
  "contact_by_external_id",
]);
const doubledAttemptsMax = 3;

/** After a lock timeout, commits of this node skip locked rows for this time. */
const skipsForMs = 10_000;

interface PostgresLedgerOptions {
  /** Read at each commit: null if it writes no events. Default: null. */
  events?: () => EventSettings | null;
  /** For tests: shorter lists and times. */
  overdueHoldsMax?: number;
  skipsForMs?: number;
}

export class PostgresCommits {
  readonly #connections: Connections;
  readonly #clock: CommitClock;
  readonly #overdueMax: number;
  readonly #skipsForMs: number;
  readonly #events: () => EventSettings | null;
  /** Kept until another plans section is current. */
  #plans: PlanCatalog | null = null;
  /** A time of `performance.now()`. */
  #skipsUntilMs = 0;

  constructor(connections: Connections, clock: CommitClock, options: PostgresLedgerOptions = {}) {
    this.#overdueMax = options.overdueHoldsMax ?? overdueMax;
    this.#skipsForMs = options.skipsForMs ?? skipsForMs;
    this.#events = options.events ?? (() => null);
    this.#connections = connections;
    this.#clock = clock;
  }

  async commit(operations: readonly Operation[]): Promise<Decision[]> {
    return await againIfDoubled(() => this.#withoutLocked(operations));
  }

  /** Opens an account or sets its contact. */
  async putAccount(draft: AccountDraft, options: DraftOptions): Promise<DraftOutcome> {
    return await againIfDoubled(() => this.#putOnce(draft, options));
  }

  async #putOnce(draft: AccountDraft, options: DraftOptions): Promise<DraftOutcome> {
    const connection = await this.#connections.connect();
    let broken = true;
    try {
      const operations = operationsOf(draft, options);
      const { snapshot } = await readUnderLock(connection, operations, {
        clock: this.#clock,
        skipsLocked: false,
        overdueMax: this.#overdueMax,
        plansAt: (mark) => this.#plansAt(connection, mark),
      });
      const events = this.#events();
      const { outcomes, changes, later } = await decideOn(connection, snapshot, operations, events);
      const known = await readContacts(connection, draft);
      const reads = draft.seat && seatReads(draft.seat, postgresWords);
      const found = reads === undefined ? null : foundSeatOf(await connection.exchange(reads));
      const planned = planDraft(draft, outcomes[0], { known, found }, { ...options, ...snapshot.times });
      if (!planned.isWritten) broken = await rollBack(connection);
      else {
        const seat = planned.seat === null ? [] : seatStatements(planned.seat, postgresWords, events);
        const named = seat.map((statement, n) => [`seat ${n}`, statement]);
        const further = { ...contactStatements(planned), ...Object.fromEntries(named) };
        await write(connection, { ...snapshot, later }, changes, further);
        broken = false;
      }
      return planned.outcome;
    } catch (error) {
      broken = await rollBack(connection);
      throw error;
    } finally {
      connection.release(broken);
    }
  }

  /**
   * Waits for locked rows at first: another commit releases them within milliseconds, and waiting
   * in line is fast and fair. A row that stays locked belongs to a stuck session. Commits then
   * skip locked rows for some time, so that the stuck row delays the other accounts only once. A
   * skipped row may be in normal use, so it does not extend that time.
   */
  async #withoutLocked(operations: readonly Operation[]): Promise<Decision[]> {
    for (;;) {
      const skipsLocked = performance.now() < this.#skipsUntilMs;
      try {
        return await this.#attempt(operations, skipsLocked);
      } catch (error) {
        if (!isLockTimeout(error)) throw error;
        // A row that is no account, or is not there yet. Each account is committed on its own.
        if (skipsLocked) return operations.map(() => ({ kind: "locked" }));
        this.#skipsUntilMs = performance.now() + this.#skipsForMs;
      }
    }
  }

  async #attempt(operations: readonly Operation[], skipsLocked: boolean): Promise<Decision[]> {
    const connection = await this.#connections.connect();
    let broken = true;
    let isWriting = false;
    try {
      const { snapshot, locked } = await readUnderLock(connection, operations, {
        clock: this.#clock,
        skipsLocked,
        overdueMax: this.#overdueMax,
        plansAt: (mark) => this.#plansAt(connection, mark),
      });
      const free = operations.filter(({ account }) => !locked.has(account));
      const { outcomes, changes, later } = await decideOn(connection, snapshot, free, this.#events());
      isWriting = true;
      await write(connection, { ...snapshot, later }, changes);
      broken = false;
      const decided = outcomes.values();
      return operations.map(({ account }) => {
        if (locked.has(account)) return { kind: "locked" };
        const { value } = decided.next();
        invariant(value !== undefined, "the kernel decides each operation");
        return value;
      });
    } catch (error) {
      broken = await rollBack(connection);
      // A server that still answers has rolled back. One that fails during a commit, for example
      // because its disk is full, may have written it.
      throw isWriting && broken ? error : withNothingDone(error);
    } finally {
      connection.release(broken);
    }
  }

  /**
   * Reads the plans in the transaction of a commit that has read another mark than the kept one.
   */
  async #plansAt(connection: Connection, mark: number): Promise<PlanCatalog> {
    if (this.#plans?.mark === mark) return this.#plans;
    this.#plans = await readCatalog(async (text) => (await connection.query({ text })).rows);
    return this.#plans;
  }
}

/** Repeats an attempt that met a row that another node has just written. */
async function againIfDoubled<T>(attempt: () => Promise<T>): Promise<T> {
  for (let n = 1; ; n += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (n === doubledAttemptsMax || !sharedIndexes.has(doubledIn(error))) throw error;
    }
  }
}

/** Decides again with the later grants of an account if a decision needs them. */
async function decideOn(
  connection: Connection,
  snapshot: Omit<Snapshot, "later">,
  operations: readonly Operation[],
  events: EventSettings | null,
): Promise<ReturnType<typeof decide> & Pick<Snapshot, "later">> {
  const later = new Map<string, readonly AdditionalGrant[]>();
  for (;;) {
    try {
      return { later, ...decide({ ...snapshot, later }, operations, events) };
    } catch (error) {
      if (!(error instanceof LaterNeeded) || later.has(error.account)) throw error;
      later.set(error.account, await readLaterGrants(connection, error.account));
    }
  }
}

const idKey = { unique: ["id"], more: ["account"] };
const laterKey = { unique: ["account", "seq"] };
const insertAccounts = insertInto(accountTable);
const updateAccounts = update(accountTable, { unique: ["id"] });
const insertLater = insertInto(laterGrantTable);
const updateLater = update(laterGrantTable, laterKey);
const deleteLater = deletion(laterGrantKeyTable, laterKey);
const insertHolds = insertInto(holdTable);
const updateHolds = update(holdTable, idKey);
const deleteHolds = deletion(holdKeyTable, idKey);
const insertJournal = insertInto(journalTable);
const insertGrants = insertInto(grantTable);
const insertCharges = insertInto(chargeTable);
const updateKeys = update(keyStateTable, idKey);
const setKeys = update(keyTable, idKey, "all of api_key");
const insertKeys = insertInto(keyTable);
const insertEvents = insertInto(eventTable);

/** `further` statements are written in the same transaction. */
async function write(
  connection: Connection,
  snapshot: Snapshot,
  changes: Changes,
  further: Readonly<Record<string, Statement | null>> = {},
): Promise<void> {
  const [newAccounts, accounts] = apart(changes.accounts, (row) => snapshot.accounts.has(row.id));
  // New accounts have no rows to lock. Their order keeps two nodes that open the same accounts
  // from a deadlock.
  newAccounts.sort((a, b) => (a.id < b.id ? -1 : 1));
  // The same for payments and operations, which two nodes may make on different accounts.
  const grants = changes.grants.toSorted((a, b) => ((a.payment ?? "") < (b.payment ?? "") ? -1 : 1));
  const journal = changes.journal.toSorted((a, b) => ((a.op ?? "") < (b.op ?? "") ? -1 : 1));
  const later = laterChanges(snapshot, changes);
  const [newHolds, holds] = apart(changes.holdsPut, (row) => snapshot.holds.has(rowKey(row.account, row.id)));
  await together(connection, {
    newAccounts: insertAccounts(newAccounts),
    accounts: updateAccounts(accounts),
    newLater: insertLater(later.added),
    later: updateLater(later.changed),
    laterClosed: deleteLater(later.removed),
    newHolds: insertHolds(newHolds),
    holds: updateHolds(holds),
    holdsEnded: deleteHolds(changes.holdsEnded),
    journal: insertJournal(journal),
    grants: insertGrants(grants),
    charges: insertCharges(changes.charges),
    keys: updateKeys(changes.keys),
    keysSet: setKeys(changes.keysSet),
    keysNew: insertKeys(changes.keysNew),
    events: insertEvents(changes.events.map(eventRow)),
    ...further,
    commit: { name: "commit", text: "commit" },
  });
}

function apart<R>(rows: readonly R[], isSecond: (row: R) => boolean): [first: R[], second: R[]] {
  return [rows.filter((row) => !isSecond(row)), rows.filter(isSecond)];
}
