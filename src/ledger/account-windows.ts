/**
 * The windows of one account while they are changed in memory: refreshed, changed with the plan,
 * kept, resumed and restored. `write` moves them to the account and makes their grants. Pure.
 */
import { type EpochMs, type MicroCredits, microOf } from "../units.ts";
import { type PlanCatalog, type PlanVersion, versionAt } from "./plan.ts";
import {
  type AccountRow,
  type BucketAmounts,
  fieldOf,
  type GrantCause,
  type GrantRow,
  type KeptWindow,
  type PastWindow,
  type WindowBucket,
  windowBuckets,
} from "./rows.ts";
import { isSamePeriod, windowAt } from "./windows.ts";

/** Why a grant is written, and the plan version that gives its credits. Null: it gives none. */
interface GrantOrigin {
  cause: GrantCause;
  plan: string;
  version: number | null;
}

/** A window of base or overage while it is changed. */
interface OpenWindow extends Omit<KeptWindow, "bucket"> {
  credits: MicroCredits;
  /** The grant to write. Null: nothing changed. */
  grant: GrantOrigin | null;
}

/** A change of windows, to be posted as one journal entry. */
export interface WindowsChange {
  kind: "open" | "refresh" | "plan" | "close" | "reverse";
  atMs: EpochMs;
  /** The plan that took effect, for the note. */
  plan: string | null;
  deltas: BucketAmounts;
  grants: GrantRow[];
}

function spentOf(account: AccountRow, bucket: WindowBucket): MicroCredits {
  return account[fieldOf[bucket].cap] - account[bucket] - account[fieldOf[bucket].held];
}

function windowOf(account: AccountRow, bucket: WindowBucket): OpenWindow {
  return {
    credits: account[fieldOf[bucket].cap],
    plan: account[fieldOf[bucket].plan],
    version: account[fieldOf[bucket].version],
    every: account[fieldOf[bucket].every],
    anchorMs: account[fieldOf[bucket].anchorMs],
    startsMs: account[fieldOf[bucket].startsMs],
    endsMs: account[fieldOf[bucket].endsMs],
    since: account[fieldOf[bucket].since],
    spent: spentOf(account, bucket),
    held: account[fieldOf[bucket].held],
    grant: null,
  };
}

/** The windows of an account while they are changed in memory. */
export class AccountWindows {
  readonly #account: AccountRow;
  readonly #catalog: PlanCatalog;
  /** Number of the journal entry that will record the change. */
  readonly #seq: number;
  readonly #windows: Record<WindowBucket, OpenWindow>;

  constructor(account: AccountRow, catalog: PlanCatalog) {
    this.#account = account;
    this.#catalog = catalog;
    this.#seq = account.seq + 1;
    this.#windows = { base: windowOf(account, "base"), overage: windowOf(account, "overage") };
  }

  #versionsOf(plan: string): readonly PlanVersion[] {
    return this.#catalog.versions.get(plan) ?? [];
  }

  open(atMs: EpochMs): void {
    const version = this.#versionsOf(this.#account.plan).at(-1);
    if (version === undefined) return;
    for (const bucket of windowBuckets) {
      const { credits, every } = version[bucket];
      this.#windows[bucket] = {
        ...this.#windows[bucket],
        credits: microOf(credits),
        plan: version.id,
        version: version.version,
        every,
        anchorMs: atMs,
        ...windowAt(atMs, every, atMs),
        since: this.#seq,
        grant: grantBy("open", version),
      };
    }
  }

  /**
   * Moves a bucket to the window that contains `atMs`. Any number of missed windows is one step
   * for each plan version: a window uses the newest version at its start. Without a version
   * nothing changes.
   */
  refresh(bucket: WindowBucket, atMs: EpochMs): void {
    const versions = this.#versionsOf(this.#account.plan);
    let window = this.#windows[bucket];
    while (window.endsMs <= atMs) {
      const startsMs = window.endsMs;
      const version = versionAt(versions, startsMs);
      if (version === undefined) return;
      const { credits, every } = version[bucket];
      const isOnGrid =
        isSamePeriod(every, window.every) && windowAt(window.anchorMs, every, startsMs).startsMs === startsMs;
      const anchorMs = isOnGrid ? window.anchorMs : startsMs;
      // The next version takes effect at the first boundary after its creation.
      const changesMs = versions.find(({ createdMs }) => createdMs >= startsMs)?.createdMs ?? Infinity;
      let next = windowAt(anchorMs, every, atMs);
      if (next.startsMs > changesMs) next = windowAt(anchorMs, every, changesMs);
      window = {
        ...window,
        credits: microOf(credits),
        plan: version.id,
        version: version.version,
        every,
        anchorMs,
        ...next,
        since: this.#seq,
        spent: 0,
        held: 0,
        grant: grantBy("window", version),
      };
    }
    this.#windows[bucket] = window;
  }

  /** Returns to the window of an earlier grant. Reports false if its plan version is not known. */
  restore(bucket: WindowBucket, past: PastWindow | null): boolean {
    if (past === null) return false;
    const { grant, spent, held } = past;
    const { plan, version, anchorMs, startsMs, endsMs, since, amount: credits } = grant;
    const made = this.#versionsOf(plan).find((one) => one.version === version);
    if (made === undefined) return false;
    const { every } = made[bucket];
    const window = { credits, plan, version, every, anchorMs, startsMs, endsMs, since, spent, held };
    this.#windows[bucket] = { ...window, grant: { cause: "reversal", plan, version } };
    return true;
  }

  /** Base and overage lapse. Spent and held credits stay counted. */
  close(): void {
    const { plan } = this.#account;
    for (const bucket of windowBuckets) {
      const grant = { cause: "close", plan, version: null } as const;
      this.#windows[bucket] = { ...this.#windows[bucket], credits: 0, grant };
    }
  }

  endOf(bucket: WindowBucket): EpochMs {
    return this.#windows[bucket].endsMs;
  }

  /** Each bucket goes by its own period. */
  changePlan(
    plan: string,
    atMs: EpochMs,
    at: "now" | "refresh",
    buckets: readonly WindowBucket[] = windowBuckets,
  ): void {
    this.#account.plan = plan;
    const versions = this.#versionsOf(plan);
    // A refresh comes before a new version of the same moment.
    const newest = at === "now" ? versions.at(-1) : versionAt(versions, atMs);
    if (newest === undefined) return;
    for (const bucket of buckets) this.#changeBucket(bucket, newest, atMs);
  }

  #changeBucket(bucket: WindowBucket, newest: PlanVersion, atMs: EpochMs): void {
    const { every } = newest[bucket];
    const resumed = this.#resume(bucket, newest, atMs);
    const window = resumed ?? {
      // It carries what was spent and is held.
      ...this.#windows[bucket],
      plan: newest.id,
      version: newest.version,
      every,
      anchorMs: atMs,
      ...windowAt(atMs, every, atMs),
    };
    // An account that comes back to the plan of the window's start gets the same credits as if it
    // had stayed.
    const own =
      resumed?.plan === newest.id
        ? this.#versionsOf(newest.id).find(({ version }) => version === resumed.version)
        : undefined;
    const version = own && isSamePeriod(own[bucket].every, window.every) ? own : newest;
    this.#windows[bucket] = {
      ...window,
      credits: microOf(version[bucket].credits),
      grant: grantBy("plan", version),
    };
  }

  /**
   * Returns the open window that the plan continues: the one that this plan began, even if the
   * plan has another period now, or else one of its period. Of several it is the latest. The
   * present window is kept if it is another one. Null: a new window has to start.
   */
  #resume(bucket: WindowBucket, { id, [bucket]: { every } }: PlanVersion, atMs: EpochMs): OpenWindow | null {
    const before = this.#windows[bucket];
    const { kept } = this.#account;
    const closed = kept.filter((window) => window.bucket === bucket && window.endsMs > atMs).toReversed();
    const open = [before, ...closed];
    const resumed =
      open.find(({ plan }) => plan === id) ?? open.find((window) => isSamePeriod(window.every, every));
    if (resumed === before) return before;
    const { grant: _grant, credits: _credits, ...left } = before;
    const others = kept.filter((window) => window !== resumed);
    this.#account.kept = before.endsMs > atMs ? [...others, { bucket, ...left }] : others;
    return resumed === undefined || !("bucket" in resumed) ? null : { ...before, ...windowFields(resumed) };
  }

  /** Writes the windows to the account. Returns null if none has changed. */
  write({
    kind,
    plan,
    atMs,
  }: {
    kind: WindowsChange["kind"];
    plan: string | null;
    atMs: EpochMs;
  }): WindowsChange | null {
    const account = this.#account;
    const deltas: BucketAmounts = { base: 0, overage: 0, additional: 0 };
    const grants: GrantRow[] = [];
    account.kept = account.kept.filter(({ endsMs }) => endsMs > atMs);
    for (const bucket of windowBuckets) {
      const window = this.#windows[bucket];
      if (window.grant === null) continue;
      const { anchorMs, startsMs, endsMs, since, spent, held } = window;
      grants.push({
        account: account.id,
        seq: this.#seq,
        bucket,
        atMs,
        amount: window.credits,
        ref: null,
        payment: null,
        ...window.grant,
        ...{ anchorMs, startsMs, endsMs, since, spent, held },
      });
      deltas[bucket] = window.credits - window.spent - window.held - account[bucket];
      account[fieldOf[bucket].cap] = window.credits;
      account[fieldOf[bucket].held] = window.held;
      account[fieldOf[bucket].plan] = window.plan;
      account[fieldOf[bucket].version] = window.version;
      account[fieldOf[bucket].every] = window.every;
      account[fieldOf[bucket].anchorMs] = window.anchorMs;
      account[fieldOf[bucket].startsMs] = window.startsMs;
      account[fieldOf[bucket].endsMs] = window.endsMs;
      account[fieldOf[bucket].since] = window.since;
      account[fieldOf[bucket].grant] = this.#seq;
    }
    return grants.length === 0 ? null : { kind, atMs, plan, deltas, grants };
  }
}

function windowFields({ bucket: _bucket, ...window }: KeptWindow): Omit<KeptWindow, "bucket"> {
  return window;
}

function grantBy(cause: GrantCause, { id, version }: PlanVersion): GrantOrigin {
  return { cause, plan: id, version };
}
