/**
 * The rows of a commit batch: the snapshot that the store read under its locks, the changed
 * copies, and the rows to write. Only `post` moves buckets and creates journal entries. It checks
 * the invariants of the account each time. Pure.
 */
import { invariant } from "../errors.ts";
import { type EpochMs, type MicroCredits, microOf } from "../units.ts";
import type {
  AccountError,
  AdjustOperation,
  ExtendOperation,
  HoldOperation,
  Operation,
  PlanOperation,
  TopupOperation,
} from "./operations.ts";
import type { Plan, Plans } from "./plan.ts";
import type {
  AccountRow,
  BucketAmounts,
  Ending,
  HoldRow,
  JournalKind,
  JournalRow,
  KeyRow,
  UsageRow,
} from "./rows.ts";
import { windowAt } from "./windows.ts";

/**
 * Maximum number of overdue holds that a commit ends, in addition to the holds of its operations.
 * It bounds the time of a commit after a node has died with many holds. 100 holds take about 5 ms.
 */
export const overdueMax = 100;

/**
 * Every row that the operations of a batch can change, read under the lock. The kernel changes
 * copies.
 */
export interface Snapshot {
  nowMs: EpochMs;
  /** Every account that an operation names and that exists. */
  accounts: ReadonlyMap<string, AccountRow>;
  /** By `rowKey(account, id)`: open holds that an operation names, and those of `overdue`. */
  holds: ReadonlyMap<string, HoldRow>;
  /**
   * Keys of the overdue holds to end, ordered by time, account and id. These are the first
   * `overdueMax` of all accounts on which an operation takes or extends a hold.
   */
  overdue: readonly string[];
  /** Accounts with further overdue holds. */
  unfinished: ReadonlySet<string>;
  /**
   * By `rowKey(account, op)`: entries whose `op` is `opOf` an operation of the batch, or the
   * `lateOp` of its hold.
   */
  journal: ReadonlyMap<string, JournalRow>;
  /** By `rowKey(account, id)`: usage rows of the holds that operations name. */
  usage: ReadonlyMap<string, UsageRow>;
  /** By key id: the keys of hold operations, of the holds and of the usage rows above. */
  keys: ReadonlyMap<string, KeyRow>;
}

/**
 * Rows to write, as sets. Accounts, holds and usage rows are inserted or replaced. Keys exist
 * already.
 */
export interface Changes {
  accounts: AccountRow[];
  holdsPut: HoldRow[];
  holdsEnded: { account: string; id: string }[];
  journal: JournalRow[];
  usage: UsageRow[];
  /** Only `requestsTatMs`, `tokensTatMs`, `holds` and `lastUsedMs` have changed. */
  keys: KeyRow[];
}

/** Operations that their own journal entry identifies. */
type PostedOperation = HoldOperation | ExtendOperation | TopupOperation | AdjustOperation | PlanOperation;

export function rowKey(account: string, id: string): string {
  return `${account}\n${id}`;
}

/**
 * Returns the `op` of the operation's journal entry, or null if its hold or account identifies it.
 * The store reads this entry, and the kernel posts it.
 */
export function opOf(operation: PostedOperation): string;
export function opOf(operation: Operation): string | null;
export function opOf(operation: Operation): string | null {
  switch (operation.kind) {
    case "hold":
      return operation.hold;
    case "extend":
      return `${operation.hold}/${operation.n}`;
    case "topup":
      return `payment:${operation.payment}`;
    case "adjust":
      return `adjust:${operation.op}`;
    case "plan":
      return `plan:${operation.op}`;
    case "open":
    case "settle":
    case "expire":
      return null;
  }
}

/**
 * Reports whether the overdue holds of the account must end first, because the operation needs
 * their credits.
 */
export function endsOverdue({ kind }: Operation): boolean {
  return kind === "hold" || kind === "extend";
}

/**
 * Returns the `op` of a settlement after the expiry of its hold. The store reads this entry with
 * the receipt.
 */
export function lateOp(hold: string): string {
  return `${hold}/late`;
}

const shortNote = / \((\d+) short before\)$/;

/**
 * Returns the note of that entry: the ending, and the shortfall of the expiry in micro-credits.
 */
export function lateNote(ending: Ending, shortfallBefore: MicroCredits): string {
  return shortfallBefore === 0 ? ending : `${ending} (${shortfallBefore} short before)`;
}

/** Parses the shortfall from such a note. */
export function shortfallIn(note: string | null): MicroCredits {
  return Number(shortNote.exec(note ?? "")?.[1] ?? 0);
}

/**
 * An account changes only with a journal entry. The exception are its rate limits, which follow a
 * clock that was set back.
 */
function isMoved(account: AccountRow, read: AccountRow | undefined): boolean {
  return (
    account.seq !== read?.seq ||
    account.requestsTatMs !== read.requestsTatMs ||
    account.tokensTatMs !== read.tokensTatMs
  );
}

function isChanged(key: KeyRow, read: KeyRow | undefined): boolean {
  return (
    key.holds !== read?.holds ||
    key.lastUsedMs !== read.lastUsedMs ||
    key.requestsTatMs !== read.requestsTatMs ||
    key.tokensTatMs !== read.tokensTatMs
  );
}

function isAmount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

/** Describes why the account cannot be used. Returns null if it is sound. */
function problemOf(account: AccountRow, plans: Plans): string | null {
  if (!plans.has(account.plan)) return `its plan "${account.plan}" is not in the configuration`;
  const { base, baseCap, overage, overageCap, additional, heldBase, heldOverage, heldAdditional } = account;
  if (!isAmount(base) || !isAmount(overage) || !isAmount(additional))
    return "a bucket is negative or not whole";
  if (!isAmount(baseCap) || !isAmount(overageCap)) return "a cap is negative or not whole";
  if (
    !isAmount(heldBase) ||
    !isAmount(heldOverage) ||
    !isAmount(heldAdditional) ||
    !isAmount(account.holds)
  ) {
    return "what is held is negative or not whole";
  }
  if (!isAmount(additional + heldAdditional)) return "the additional credits are too many to count exactly";
  if (base + heldBase > baseCap || overage + heldOverage > overageCap) return "a bucket is above its cap";
  const { baseStartsMs, baseEndsMs, overageStartsMs, overageEndsMs } = account;
  if (!Number.isSafeInteger(baseStartsMs) || !Number.isSafeInteger(overageStartsMs))
    return "a window has no beginning";
  if (!Number.isSafeInteger(baseEndsMs) || !Number.isSafeInteger(overageEndsMs)) return "a window has no end";
  if (!Number.isSafeInteger(account.baseAnchorMs) || !Number.isSafeInteger(account.overageAnchorMs)) {
    return "a window has no anchor";
  }
  if (baseStartsMs >= baseEndsMs || overageStartsMs >= overageEndsMs) return "a window ends before it begins";
  return null;
}

export interface FoundAccount {
  kind: "found";
  account: AccountRow;
  plan: Plan;
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
  readonly #plans: Plans;
  readonly #accounts = new Map<string, AccountRow>();
  readonly #holds = new Map<string, HoldRow | null>();
  readonly #journal = new Map<string, JournalRow>();
  readonly #usage = new Map<string, UsageRow>();
  readonly #keys = new Map<string, KeyRow>();
  readonly #expired: UsageRow[] = [];

  constructor(snapshot: Snapshot, plans: Plans) {
    this.#snapshot = snapshot;
    this.#plans = plans;
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
      usage: [...this.#usage.values()],
      keys: [...this.#keys.values()].filter((key) => isChanged(key, this.#snapshot.keys.get(key.id))),
    };
  }

  /** Opens an account with two windows that start now. */
  open(id: string, plan: Plan): void {
    invariant(this.planOf(id) === undefined, () => `account ${id} is opened once`);
    const nowMs = this.#snapshot.nowMs;
    const base = windowAt(nowMs, plan.base.every, nowMs);
    const overage = windowAt(nowMs, plan.overage.every, nowMs);
    const account: AccountRow = {
      id,
      plan: plan.id,
      seq: 0,
      createdMs: nowMs,
      base: 0,
      baseCap: microOf(plan.base.credits),
      baseAnchorMs: nowMs,
      baseStartsMs: base.startsMs,
      baseEndsMs: base.endsMs,
      overage: 0,
      overageCap: microOf(plan.overage.credits),
      overageAnchorMs: nowMs,
      overageStartsMs: overage.startsMs,
      overageEndsMs: overage.endsMs,
      additional: 0,
      heldBase: 0,
      heldOverage: 0,
      heldAdditional: 0,
      holds: 0,
      requestsTatMs: 0,
      tokensTatMs: 0,
    };
    this.#accounts.set(id, account);
    this.post(account, "open", "open", plan.id, {
      base: account.baseCap,
      overage: account.overageCap,
      additional: 0,
    });
  }

  planNamed(name: string): Plan | undefined {
    return this.#plans.get(name);
  }

  planOf(id: string): string | undefined {
    return (this.#accounts.get(id) ?? this.#snapshot.accounts.get(id))?.plan;
  }

  /**
   * Returns the account with its windows rolled forward, or why it cannot be used. `successor`
   * replaces a plan that is missing from the configuration, so that the account can be moved to
   * another plan.
   */
  account(id: string, successor?: string): FoundAccount | AccountError {
    let account = this.#accounts.get(id);
    if (account === undefined) {
      const read = this.#snapshot.accounts.get(id);
      if (read === undefined) return { kind: "no_account" };
      account = { ...read };
      if (successor !== undefined && !this.#plans.has(account.plan)) account.plan = successor;
      const problem = problemOf(account, this.#plans);
      if (problem !== null) return { kind: "balance_invalid", problem };
      this.#accounts.set(id, account);
    }
    const plan = this.#plans.get(account.plan);
    invariant(plan !== undefined, `the plan of account ${id} was checked`);
    this.#roll(account, plan);
    return { kind: "found", account, plan, nowMs: this.#snapshot.nowMs, atMs: this.#atOf(account) };
  }

  /** A clock that was set back is before the start of a window. */
  #atOf(account: AccountRow): EpochMs {
    return Math.max(this.#snapshot.nowMs, account.baseStartsMs, account.overageStartsMs);
  }

  /** Refills the buckets whose window has ended, in one step for any number of missed windows. */
  #roll(account: AccountRow, plan: Plan): void {
    const nowMs = this.#atOf(account);
    const deltas: BucketAmounts = { base: 0, overage: 0, additional: 0 };
    const baseEnded = nowMs >= account.baseEndsMs;
    const overageEnded = nowMs >= account.overageEndsMs;
    if (!baseEnded && !overageEnded) return;
    if (baseEnded) {
      const window = windowAt(account.baseAnchorMs, plan.base.every, nowMs);
      // The plan's period may have changed. A window never starts before the end of the last one,
      // so its start identifies it.
      account.baseStartsMs = Math.max(window.startsMs, account.baseEndsMs);
      account.baseEndsMs = window.endsMs;
      account.baseCap = microOf(plan.base.credits);
      account.heldBase = 0;
      deltas.base = account.baseCap - account.base;
    }
    if (overageEnded) {
      const window = windowAt(account.overageAnchorMs, plan.overage.every, nowMs);
      account.overageStartsMs = Math.max(window.startsMs, account.overageEndsMs);
      account.overageEndsMs = window.endsMs;
      account.overageCap = microOf(plan.overage.credits);
      account.heldOverage = 0;
      deltas.overage = account.overageCap - account.overage;
    }
    this.post(account, "refresh", `refresh/${account.seq + 1}`, null, deltas);
  }

  /**
   * Moves the buckets and posts the journal entry. All other fields of the account are final by
   * now.
   */
  post(account: AccountRow, kind: JournalKind, op: string, note: string | null, deltas: BucketAmounts): void {
    account.base += deltas.base;
    account.overage += deltas.overage;
    account.additional += deltas.additional;
    account.seq += 1;
    const problem = problemOf(account, this.#plans);
    if (problem !== null)
      throw new Error(`account ${account.id} would not be sound after ${kind} ${op}: ${problem}`);
    this.#journal.set(rowKey(account.id, op), {
      account: account.id,
      seq: account.seq,
      atMs: this.#atOf(account),
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

  end(hold: HoldRow, usage: UsageRow): void {
    this.#holds.set(rowKey(hold.account, hold.id), null);
    this.record(usage);
    if (usage.ending === "expired") this.#expired.push(usage);
  }

  /** Returns the receipts of the holds that have expired since the last call. */
  takeExpired(): UsageRow[] {
    return this.#expired.splice(0);
  }

  record(usage: UsageRow): void {
    this.#usage.set(rowKey(usage.account, usage.id), usage);
  }

  usage(account: string, id: string): UsageRow | null {
    const key = rowKey(account, id);
    return this.#usage.get(key) ?? this.#snapshot.usage.get(key) ?? null;
  }

  /** Returns the row of the key, to change in place, or null if it does not exist. */
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
