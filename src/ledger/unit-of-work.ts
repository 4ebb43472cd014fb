/**
 * The state of a batch while it is decided: changed copies of the rows of the snapshot, and the
 * facts that it adds. Pure.
 */
import { service } from "../actors.ts";
import { invariant } from "../errors.ts";
import type { MicroCredits } from "../units.ts";
import { problemOf } from "./account-problems.ts";
import { BalanceWatch } from "./balance-watch.ts";
import { cappedFields, uncapped } from "./cap-rows.ts";
import { type Entitlement, freshGrant, passBoundaries } from "./entitlement.ts";
import type { EventData, EventFact, EventSettings, EventType } from "./events.ts";
import { factText } from "./fact-values.ts";
import { noLater } from "./grants.ts";
import { OpenGrants } from "./open-grants.ts";
import type { OpenOperation, PostedOperation } from "./operations.ts";
import type { AccountError } from "./outcomes.ts";
import { newestVersion, type PlanCatalog, type PlanVersion, planCapsAt, ruleOf } from "./plan.ts";
import type { Refused } from "./refusals.ts";
import {
  type AccountRow,
  type ChargeRow,
  countFields,
  type GrantRow,
  type HoldRow,
  type JournalKind,
  type JournalRow,
  type KeyRow,
  keyStateFields,
  type LaterGrantRow,
  uncounted,
  windowBuckets,
} from "./rows.ts";
import {
  type Changes,
  type EndedRequest,
  opOf,
  type PaymentFact,
  rowKey,
  type Snapshot,
  type Times,
} from "./snapshot.ts";
import { windowFrom } from "./windows.ts";

export interface FoundAccount {
  kind: "found";
  account: AccountRow;
  grants: OpenGrants;
  /** The newest version of its plan, or null if the database has none. */
  plan: PlanVersion | null;
  times: Times;
}

/** An entry to post. Absent: null, and the time of the batch. */
type Posting = Pick<JournalRow, "kind" | "by"> & Partial<Omit<JournalRow, "account" | "seq">>;

/** Rows are copied before their first change. */
export class UnitOfWork {
  readonly #snapshot: Snapshot;
  readonly #found = new Map<string, FoundAccount>();
  readonly #holds = new Map<string, HoldRow | null>();
  readonly #journal: JournalRow[] = [];
  readonly #entries = new Map<string, JournalRow>();
  readonly #grants: GrantRow[] = [];
  readonly #charges = new Map<string, ChargeRow[]>();
  readonly #memosMicro = new Map<string, number>();
  readonly #payments = new Map<string, PaymentFact>();
  readonly #keys = new Map<string, KeyRow>();
  readonly #keysSet = new Set<KeyRow>();
  readonly #keysNew = new Set<KeyRow>();
  readonly #expired: ChargeRow[] = [];
  readonly #events: EventFact[] = [];
  /** Null: no events are written. */
  readonly #watch: BalanceWatch | null;

  constructor(snapshot: Snapshot, events: EventSettings | null = null) {
    this.#snapshot = snapshot;
    this.#watch = events === null ? null : new BalanceWatch(events);
  }

  get plans(): PlanCatalog {
    return this.#snapshot.plans;
  }

  changes(): Changes {
    const holdsPut: HoldRow[] = [];
    const holdsEnded: { account: string; id: string }[] = [];
    for (const [key, hold] of this.#holds) {
      if (hold !== null) {
        holdsPut.push(hold);
        continue;
      }
      // A hold that starts and ends in the same batch is not in the database.
      const written = this.#snapshot.holds.get(key);
      if (written !== undefined) holdsEnded.push({ account: written.account, id: written.id });
    }
    const later = new Map<string, LaterGrantRow[]>();
    for (const [account, { grants }] of this.#found) {
      const before = this.#snapshot.later.get(account);
      const after = grants.later;
      if (after === null || (before === undefined && after.length === 0)) continue;
      later.set(
        account,
        after.map((grant) => ({ account, ...grant })),
      );
    }
    return {
      accounts: [...this.#found.values()].flatMap(({ account }) =>
        isMoved(account, this.#snapshot.accounts.get(account.id)) ? [account] : [],
      ),
      later,
      holdsPut,
      holdsEnded,
      journal: this.#journal,
      grants: this.#grants,
      charges: [...this.#charges.values()].flat(),
      keys: [...this.#keys.values()].filter(
        (key) =>
          !this.#keysSet.has(key) &&
          !this.#keysNew.has(key) &&
          isChanged(key, this.#snapshot.keys.get(key.id)),
      ),
      keysSet: [...this.#keysSet].filter((key) => !this.#keysNew.has(key)),
      keysNew: [...this.#keysNew],
      events: this.#events,
    };
  }

  /** Adds an event of the account, if events are written. */
  tell({ account, times }: FoundAccount, type: EventType, data: EventData): void {
    if (this.#watch === null) return;
    this.#events.push({ account: account.id, seq: account.seq, atMs: times.atMs, type, data });
  }

  /** Adds the events of credits that became low in an operation. */
  look(account: string): void {
    const found = this.#found.get(account);
    if (found === undefined || this.#watch === null) return;
    const caps = planCapsAt(this.plans, found.account.plan, found.times.atMs);
    this.#watch.look(found.account, caps, found.times, (type, data) => this.tell(found, type, data));
  }

  /** Opens an account with both windows. */
  open({ account: id, plan, by }: OpenOperation, version: PlanVersion): FoundAccount {
    invariant(this.planOf(id) === undefined, () => `account ${id} is opened once`);
    const { atMs } = this.#snapshot.times;
    const account: AccountRow = {
      ...emptyAccount,
      id,
      plan,
      planSinceMs: atMs,
      atMs,
      createdMs: atMs,
    };
    const found = this.#add(account);
    this.post(found, { kind: "open", by, after: factText({ plan }) });
    this.tell(found, "account.opened", { plan, by });
    for (const bucket of windowBuckets) {
      const window = windowFrom(ruleOf(version, bucket), atMs);
      this.#entitle(found, { kind: "window", bucket, grant: freshGrant(version, bucket, window) });
    }
    return found;
  }

  planOf(id: string): string | undefined {
    return (this.#found.get(id)?.account ?? this.#snapshot.accounts.get(id))?.plan;
  }

  #add(account: AccountRow): FoundAccount {
    const later = this.#snapshot.later.get(account.id) ?? null;
    const { nowMs, atMs } = this.#snapshot.times;
    const found: FoundAccount = {
      kind: "found",
      account,
      grants: new OpenGrants(account, later),
      plan: newestVersion(this.plans, account.plan) ?? null,
      // Nodes may differ, and a believed clock may go back by seconds.
      times: { nowMs, atMs: Math.max(atMs, account.atMs) },
    };
    this.#found.set(account.id, found);
    return found;
  }

  /** Returns the account with everything applied that is due, or why it cannot be used. */
  account(id: string): FoundAccount | AccountError {
    const known = this.#found.get(id);
    if (known !== undefined) return known;
    const read = this.#snapshot.accounts.get(id);
    if (read === undefined) return { kind: "account_not_found", account: id };
    const problem = this.#snapshot.problems.get(id) ?? problemOf(read, this.plans);
    if (problem !== null) return { kind: "balance_unavailable", account: id, problem };
    const found = this.#add({ ...read });
    this.#watch?.begin(read, planCapsAt(this.plans, read.plan, found.times.atMs));
    this.#applyDue(found);
    this.look(id);
    return found;
  }

  #applyDue(found: FoundAccount): void {
    const { account, grants, times } = found;
    const { atMs } = times;
    grants.closeEnded(atMs);
    if (account.state === "closed") return;
    const { endsMs } = account;
    const post = (fact: Entitlement) => this.#entitle(found, fact);
    passBoundaries(account, this.plans, Math.min(atMs, endsMs ?? atMs), post);
    if (endsMs !== null && endsMs <= atMs) this.close(found, { by: service });
  }

  /** Base and overage lapse. Additional credits stay, and open holds settle as before. */
  close(found: FoundAccount, posting: Omit<Posting, "kind">): void {
    const { account } = found;
    const { by } = posting;
    const [before, after] = [factText({ state: account.state }), factText({ state: "closed" })];
    Object.assign(account, { base: null, overage: null, state: "closed", nextPlan: null });
    this.post(found, { kind: "close", before, after, ...posting });
    this.tell(found, "account.closed", { by });
  }

  /** Posts what time or a plan does, and changes the account by it. */
  entitle(found: FoundAccount, by: string): (fact: Entitlement) => void {
    return (fact) => this.#entitle(found, fact, by);
  }

  #entitle(found: FoundAccount, fact: Entitlement, by = service): void {
    const { account } = found;
    switch (fact.kind) {
      case "window": {
        const { bucket, grant } = fact;
        const { heldMicro: _, ...granted } = grant;
        const { amountMicro, plan } = granted;
        const after = factText({ plan });
        const seq = this.post(found, { kind: "window", by, bucket, amountMicro, after });
        account[bucket] = { ...grant, seq };
        this.#grant(account, { seq, bucket, ...granted, payment: null, requestId: null });
        return;
      }
      case "change": {
        const { bucket, grant, byMicro: amountMicro, plan } = fact;
        const open = account[bucket];
        invariant(open?.seq === grant, "the grant that changes is open");
        account[bucket] = { ...open, amountMicro: open.amountMicro + amountMicro };
        const after = factText({ plan });
        this.post(found, { kind: "change", by, bucket, amountMicro, grantSeq: grant, after });
        return;
      }
      case "plan": {
        const from = account.plan;
        const before = planFact(account);
        account.plan = fact.plan;
        account.planSinceMs = fact.atMs;
        account.nextPlan = null;
        found.plan = newestVersion(this.plans, fact.plan) ?? null;
        this.post(found, { kind: "plan", by, before, after: factText({ plan: fact.plan }) });
        this.tell(found, "account.plan_changed", { plan: fact.plan, from, by });
      }
    }
  }

  #grant({ id }: AccountRow, grant: Omit<GrantRow, "account">): void {
    this.#grants.push({ account: id, ...grant });
  }

  /** Posts the beginning of an additional grant. */
  grantAdditional(
    found: FoundAccount,
    posting: Posting & { kind: JournalKind; amountMicro: MicroCredits },
    { untilMs, payment, requestId }: Pick<GrantRow, "untilMs" | "payment" | "requestId">,
  ): void {
    const { account, grants, times } = found;
    const { amountMicro } = posting;
    const seq = this.post(found, { ...posting, bucket: "additional" });
    grants.add({ seq, amountMicro, spentMicro: 0, heldMicro: 0, untilMs, isPayment: payment !== null });
    this.#grant(account, {
      seq,
      bucket: "additional",
      amountMicro,
      spentMicro: 0,
      fromMs: times.atMs,
      untilMs,
      payment,
      requestId,
      anchorMs: null,
      plan: null,
      version: null,
    });
    if (payment !== null) {
      this.#payments.set(payment, { account: account.id, seq, amountMicro, refundedMicro: 0 });
      this.tell(found, "payment.added", { payment, amount_micro: amountMicro, by: posting.by });
    }
    if (requestId !== null) {
      const key = rowKey(account.id, requestId);
      this.#memosMicro.set(key, (this.#memosMicro.get(key) ?? 0) + amountMicro);
    }
  }

  /** Posts a journal entry, and returns its number. */
  post({ account, times }: FoundAccount, posting: Posting): number {
    const seq = nextFact(account, times);
    const absent = { op: null, bucket: null, amountMicro: null, grantSeq: null };
    const noValues = { subject: null, before: null, after: null, outcome: null };
    const entry: JournalRow = {
      account: account.id,
      seq,
      atMs: times.atMs,
      ...absent,
      ...noValues,
      ...posting,
    };
    this.#journal.push(entry);
    if (entry.op !== null) this.#entries.set(entry.op, entry);
    return seq;
  }

  /** The entry of an operation, on any account. */
  entry(op: string): JournalRow | null {
    return this.#entries.get(op) ?? this.#snapshot.journal.get(op) ?? null;
  }

  payment(id: string): PaymentFact | null {
    return this.#payments.get(id) ?? this.#snapshot.payments.get(id) ?? null;
  }

  countRefund(id: string, amountMicro: MicroCredits): void {
    const payment = this.payment(id);
    invariant(payment !== null, "the payment that is refunded was read");
    this.#payments.set(id, { ...payment, refundedMicro: payment.refundedMicro + amountMicro });
  }

  /** Returns a copy to change. `put` or `end` writes it. */
  hold(account: string, id: string): HoldRow | null {
    const key = rowKey(account, id);
    const changed = this.#holds.get(key);
    const hold = changed === undefined ? this.#snapshot.holds.get(key) : changed;
    return hold === undefined || hold === null ? null : { ...hold };
  }

  /** Returns the overdue holds of the account that this commit ends. */
  overdue(account: string): HoldRow[] {
    const { times, holds } = this.#snapshot;
    return this.#snapshot.overdue.flatMap((key) => {
      const read = holds.get(key);
      const hold = read?.account === account ? this.hold(account, read.id) : null;
      return hold !== null && hold.expiresMs <= times.nowMs ? [hold] : [];
    });
  }

  /** Reports whether the account has overdue holds that this commit does not end. */
  hasMoreOverdue(account: string): boolean {
    return this.#snapshot.moreOverdue.has(account);
  }

  put(hold: HoldRow): void {
    this.#holds.set(rowKey(hold.account, hold.id), hold);
  }

  /** Deletes the hold and records its charge. */
  end(hold: HoldRow, charge: ChargeRow): void {
    this.#holds.set(rowKey(hold.account, hold.id), null);
    this.record(charge);
    if (charge.ending === "expired") this.#expired.push(charge);
  }

  /** Returns the receipts of the holds that have expired since the last call. */
  takeExpired(): ChargeRow[] {
    return this.#expired.splice(0);
  }

  record(charge: ChargeRow): void {
    const key = rowKey(charge.account, charge.id);
    this.#charges.set(key, [...(this.#charges.get(key) ?? []), charge]);
  }

  /** Returns the charges of a request in their order, and the sum of its memos. */
  ended(account: string, id: string): EndedRequest {
    const key = rowKey(account, id);
    const { charges = [], memosMicro = 0 } = this.#snapshot.ended.get(key) ?? {};
    return {
      charges: [...charges, ...(this.#charges.get(key) ?? [])],
      memosMicro: memosMicro + (this.#memosMicro.get(key) ?? 0),
    };
  }

  addKey(key: KeyRow): void {
    this.#keys.set(key.id, key);
    this.#keysNew.add(key);
  }

  /** Returns the keys of an account of which all were read. */
  keysOf(account: string): KeyRow[] {
    const keys = new Map([...this.#snapshot.keys, ...this.#keys]);
    return [...keys.values()].filter((key) => key.account === account);
  }

  /** Returns the row of the key, to change any field, or null if it does not exist. */
  keyToSet(id: string): KeyRow | null {
    const key = this.key(id);
    if (key !== null) this.#keysSet.add(key);
    return key;
  }

  /** Returns the row of the key, to change its state in place, or null if it does not exist. */
  key(id: string): KeyRow | null {
    const key = this.#keys.get(id) ?? this.#copyOfKey(id);
    if (key !== null) this.#watch?.touch(key);
    return key;
  }

  #copyOfKey(id: string): KeyRow | null {
    const read = this.#snapshot.keys.get(id);
    if (read === undefined) return null;
    const copy = { ...read };
    this.#keys.set(id, copy);
    return copy;
  }
}

/** Returns the number of the next fact of the account, which has the present time. */
export function nextFact(account: AccountRow, { atMs }: Times): number {
  account.seq += 1;
  account.atMs = atMs;
  return account.seq;
}

/** An account has changed if one of them has: each fact has another number. */
const state = [
  "seq",
  "base",
  "overage",
  "additional",
  "later",
  ...countFields,
  ...cappedFields,
] satisfies (keyof AccountRow)[];

function isMoved(account: AccountRow, read: AccountRow | undefined): boolean {
  return read === undefined || state.some((field) => account[field] !== read[field]);
}

function isChanged(key: KeyRow, read: KeyRow | undefined): boolean {
  return read === undefined || keyStateFields.some((field) => key[field] !== read[field]);
}

/** An account before its first fact. */
export const emptyAccount: AccountRow = {
  id: "",
  plan: "",
  nextPlan: null,
  planSinceMs: 0,
  state: "active",
  endsMs: null,
  seq: 0,
  atMs: 0,
  createdMs: 0,
  base: null,
  overage: null,
  additional: [],
  later: noLater,
  ...uncounted,
  ...uncapped,
};

/** The plan of an account, as a change replaces it. */
export function planFact({ plan, nextPlan }: Pick<AccountRow, "plan" | "nextPlan">): string {
  return factText({ plan, nextPlan });
}

/** What became of an earlier execution of an operation. Null: there was none. */
export function earlier(
  work: UnitOfWork,
  operation: PostedOperation,
  { subject = null, after }: { subject?: string | null; after: string },
): { kind: "replayed" } | Refused<"operation_differs"> | null {
  const { account } = operation;
  const entry = work.entry(opOf(operation));
  if (entry === null) return null;
  const isSame = entry.account === account && entry.subject === subject && entry.after === after;
  return isSame ? { kind: "replayed" } : { kind: "operation_differs", account, entry };
}
