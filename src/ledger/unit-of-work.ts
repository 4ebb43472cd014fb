/**
 * The state of a batch while it is decided: changed copies of the rows of the snapshot. Only
 * `post` moves buckets and creates journal entries. It checks the invariants of the account each
 * time. Pure.
 */
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { problemOf, problemOfRest } from "./account-problems.ts";
import type { WindowsChange } from "./account-windows.ts";
import { applyDue, openWindows } from "./entitlement.ts";
import type { AccountError } from "./operations.ts";
import { newestVersion, type PlanCatalog, type PlanVersion } from "./plan.ts";
import { additionalOnly } from "./pricing.ts";
import type {
  AccountRow,
  BucketAmounts,
  ChargeRow,
  GrantRow,
  HoldRow,
  JournalKind,
  JournalRow,
  KeyRow,
  PastWindows,
  PaymentRow,
} from "./rows.ts";
import { type Changes, rowKey, type Snapshot } from "./snapshot.ts";

/**
 * An account changes only with a journal entry. The exceptions are what its holds have used, and
 * its rate limits, which follow a clock that was set back.
 */
function isMoved(account: AccountRow, read: AccountRow | undefined): boolean {
  return (
    account.seq !== read?.seq ||
    account.used !== read.used ||
    account.requestsTatMs !== read.requestsTatMs ||
    account.tokensTatMs !== read.tokensTatMs ||
    account.tokensLimit !== read.tokensLimit
  );
}

function isChanged(key: KeyRow, read: KeyRow | undefined): boolean {
  return (
    key.holds !== read?.holds ||
    key.held !== read.held ||
    key.used !== read.used ||
    key.lastUsedMs !== read.lastUsedMs ||
    key.requestsTatMs !== read.requestsTatMs ||
    key.tokensTatMs !== read.tokensTatMs ||
    key.tokensLimit !== read.tokensLimit ||
    key.budgetSpent !== read.budgetSpent ||
    key.budgetStartsMs !== read.budgetStartsMs
  );
}

export interface FoundAccount {
  kind: "found";
  account: AccountRow;
  /** The newest version of its plan, or null if the database has none. */
  plan: PlanVersion | null;
  /** The clock of the snapshot, for keys, limits and holds. */
  nowMs: EpochMs;
  /**
   * The clock of the windows: at least the start of each window. Journal entries and receipts have
   * this time.
   */
  atMs: EpochMs;
}

/** The state of a batch while it is decided. Rows are copied before their first change. */
export class UnitOfWork {
  readonly #snapshot: Snapshot;
  readonly #accounts = new Map<string, AccountRow>();
  readonly #holds = new Map<string, HoldRow | null>();
  readonly #journal = new Map<string, JournalRow>();
  readonly #charges = new Map<string, ChargeRow[]>();
  readonly #grants: GrantRow[] = [];
  readonly #payments = new Map<string, PaymentRow>();
  readonly #refunds = new Map<string, string>();
  readonly #keys = new Map<string, KeyRow>();
  readonly #keysSet = new Set<KeyRow>();
  readonly #expired: ChargeRow[] = [];

  constructor(snapshot: Snapshot) {
    this.#snapshot = snapshot;
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
    return {
      accounts: [...this.#accounts.values()].filter((account) =>
        isMoved(account, this.#snapshot.accounts.get(account.id)),
      ),
      holdsPut,
      holdsEnded,
      journal: [...this.#journal.values()],
      grants: this.#grants,
      charges: [...this.#charges.values()].flat(),
      keys: [...this.#keys.values()].filter(
        (key) => !this.#keysSet.has(key) && isChanged(key, this.#snapshot.keys.get(key.id)),
      ),
      keysSet: [...this.#keysSet],
    };
  }

  /** Opens an account with two windows that start now. The plan has a version. */
  open(id: string, plan: string): void {
    invariant(this.planOf(id) === undefined, () => `account ${id} is opened once`);
    const nowMs = this.#snapshot.nowMs;
    const account: AccountRow = { ...emptyAccount, id, plan, createdMs: nowMs };
    this.#accounts.set(id, account);
    const opened = openWindows(account, this.plans, nowMs);
    invariant(opened !== null, () => `the plan ${plan} has a version`);
    this.postWindows(account, opened, "open");
  }

  planOf(id: string): string | undefined {
    return (this.#accounts.get(id) ?? this.#snapshot.accounts.get(id))?.plan;
  }

  /**
   * Returns the account with everything applied that is due, or why it cannot be used. The row is
   * changed in place, and is written if `isMoved` finds a change.
   */
  account(id: string): FoundAccount | AccountError {
    let account = this.#accounts.get(id);
    if (account === undefined) {
      const read = this.#snapshot.accounts.get(id);
      if (read === undefined) return { kind: "no_account" };
      const problem = this.#snapshot.problems.get(id) ?? problemOf(read) ?? problemOfRest(read, this.plans);
      if (problem !== null) return { kind: "balance_invalid", problem };
      account = { ...read };
      this.#accounts.set(id, account);
    }
    for (;;) {
      const due = applyDue(account, this.plans, this.#atOf(account));
      if (due === null) break;
      this.postWindows(account, due, `${due.kind}/${account.seq + 1}`);
    }
    const plan = newestVersion(this.plans, account.plan) ?? null;
    return { kind: "found", account, plan, nowMs: this.#snapshot.nowMs, atMs: this.#atOf(account) };
  }

  /** A clock that was set back is before the start of a window. */
  #atOf({ baseStartsMs, overageStartsMs, kept }: AccountRow): EpochMs {
    const atMs = Math.max(this.#snapshot.nowMs, baseStartsMs, overageStartsMs);
    return kept.reduce((latest, { startsMs }) => Math.max(latest, startsMs), atMs);
  }

  postWindows(account: AccountRow, { kind, atMs, plan, deltas, grants }: WindowsChange, op: string): void {
    this.post(account, { kind, atMs, op, note: plan, deltas, grants });
  }

  /**
   * Moves the buckets and posts the journal entry. All other fields of the account are final by
   * now.
   */
  post(account: AccountRow, { kind, atMs, op, note, deltas, grants = [] }: Posting): void {
    account.base += deltas.base;
    account.overage += deltas.overage;
    account.additional += deltas.additional;
    account.seq += 1;
    const problem = problemOf(account);
    if (problem !== null)
      throw new Error(`account ${account.id} would not be sound after ${kind} ${op}: ${problem}`);
    this.#grants.push(...grants);
    this.#journal.set(rowKey(account.id, op), {
      account: account.id,
      seq: account.seq,
      atMs: atMs ?? this.#atOf(account),
      kind,
      op,
      note,
      baseDelta: deltas.base,
      overageDelta: deltas.overage,
      additionalDelta: deltas.additional,
      baseAfter: account.base,
      overageAfter: account.overage,
      additionalAfter: account.additional,
    });
  }

  /** Posts an entry that changes additional credits, with its grant. */
  grantAdditional(
    { account, atMs }: FoundAccount,
    { kind, op, note, amount, cause, ref, payment = null }: AdditionalPosting,
  ): void {
    const grant = { account: account.id, seq: account.seq + 1, bucket: "additional", cause, atMs } as const;
    this.post(account, {
      kind,
      op,
      note,
      deltas: additionalOnly(amount),
      grants: [{ ...grant, amount, ref, payment, ...noWindow }],
    });
  }

  /** Reports whether this batch has posted entries on the account. */
  hasPosted({ id, seq }: AccountRow): boolean {
    return seq !== this.#snapshot.accounts.get(id)?.seq;
  }

  past(account: string): PastWindows | null {
    return this.#snapshot.past.get(account) ?? null;
  }

  payment(id: string): PaymentRow | null {
    return this.#payments.get(id) ?? this.#snapshot.payments.get(id) ?? null;
  }

  putPayment(payment: PaymentRow): void {
    this.#payments.set(payment.id, payment);
  }

  /** Returns the account that a refund was made on, or null if the id is new. */
  refundAccount(id: string): string | null {
    return this.#refunds.get(id) ?? this.#snapshot.refunds.get(id) ?? null;
  }

  putRefund(id: string, account: string): void {
    this.#refunds.set(id, account);
  }

  entry(account: string, op: string): JournalRow | null {
    const key = rowKey(account, op);
    return this.#journal.get(key) ?? this.#snapshot.journal.get(key) ?? null;
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
    const { nowMs, holds } = this.#snapshot;
    return this.#snapshot.overdue.flatMap((key) => {
      const read = holds.get(key);
      const hold = read?.account === account ? this.hold(account, read.id) : null;
      return hold !== null && hold.expiresMs <= nowMs ? [hold] : [];
    });
  }

  /** Reports whether the account has overdue holds that this commit does not end. */
  isUnfinished(account: string): boolean {
    return this.#snapshot.unfinished.has(account);
  }

  put(hold: HoldRow): void {
    this.#holds.set(rowKey(hold.account, hold.id), hold);
  }

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

  /** Returns the charges of a hold that has ended, in their order. */
  charges(account: string, id: string): readonly ChargeRow[] {
    const key = rowKey(account, id);
    return [...(this.#snapshot.charges.get(key) ?? []), ...(this.#charges.get(key) ?? [])];
  }

  /** Returns the row of the key, to change any field, or null if it does not exist. */
  keyToSet(id: string): KeyRow | null {
    const key = this.key(id);
    if (key !== null) this.#keysSet.add(key);
    return key;
  }

  /** Returns the row of the key, to change its state in place, or null if it does not exist. */
  key(id: string): KeyRow | null {
    const changed = this.#keys.get(id);
    if (changed !== undefined) return changed;
    const read = this.#snapshot.keys.get(id);
    if (read === undefined) return null;
    const copy = { ...read };
    this.#keys.set(id, copy);
    return copy;
  }
}

interface Posting {
  kind: JournalKind;
  /** Absent: now. */
  atMs?: EpochMs;
  op: string;
  note: string | null;
  deltas: BucketAmounts;
  grants?: readonly GrantRow[];
}

interface AdditionalPosting extends Pick<GrantRow, "cause" | "amount" | "ref"> {
  kind: JournalKind;
  op: string;
  note: string;
  payment?: string | null;
}

const noWindow = {
  plan: null,
  version: null,
  anchorMs: null,
  startsMs: null,
  endsMs: null,
  since: null,
  spent: null,
  held: null,
} as const satisfies Partial<GrantRow>;

/** An account before its first journal entry. */
export const emptyAccount: AccountRow = {
  id: "",
  plan: "",
  nextPlan: null,
  state: "active",
  endsMs: null,
  seq: 0,
  createdMs: 0,
  base: 0,
  baseCap: 0,
  baseHeld: 0,
  basePlan: "",
  baseVersion: 0,
  baseEvery: "",
  baseAnchorMs: 0,
  baseStartsMs: 0,
  baseEndsMs: 0,
  baseGrant: 0,
  baseSince: 0,
  overage: 0,
  overageCap: 0,
  overageHeld: 0,
  overagePlan: "",
  overageVersion: 0,
  overageEvery: "",
  overageAnchorMs: 0,
  overageStartsMs: 0,
  overageEndsMs: 0,
  overageGrant: 0,
  overageSince: 0,
  kept: [],
  additional: 0,
  additionalHeld: 0,
  holds: 0,
  used: 0,
  requestsTatMs: 0,
  tokensTatMs: 0,
  tokensLimit: null,
};
