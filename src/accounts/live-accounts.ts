/**
 * The live state of an account for pages of the portal and the console: balance and running
 * requests at the checkpoints of the ledger. Any process may have written these.
 *
 * However many pages watch, one statement a second finds the accounts that have changed, and each
 * of these is read once. The rights of a key are read again each second.
 */
import { type BalanceView, balanceOf } from "../ledger/balance.ts";
import type { HoldRow, KeyRow } from "../ledger/rows.ts";
import { pageRowsMax, type Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import type { KeySession } from "./key-sessions.ts";

export interface LiveAccount {
  balance: BalanceView;
  /**
   * Number of the newest journal entry of the account: a request that began and ended between two
   * looks has changed it, and perhaps nothing else.
   */
  seq: number;
  /** Running requests that the viewer may see, oldest first. */
  requests: readonly HoldRow[];
}

interface Reading {
  balance: BalanceView;
  seq: number;
  holds: readonly HoldRow[];
}

/** Null sees all requests of the account. */
type Viewer = {
  /** SHA-256 of the secret of the session. */
  owner: string;
  key: KeyRow;
} | null;

interface Watcher {
  viewer: Viewer;
  show(live: LiveAccount): void;
}

interface Watched {
  readonly watchers: Set<Watcher>;
  mark: string | null;
  reading: Reading | null;
  /** The balance changes then by itself: a window refreshes, or the account closes. */
  changesMs: EpochMs;
}

interface LiveAccountsOptions {
  store: Pick<Store, "accountMarks" | "findKeys" | "accountSnapshot" | "holds" | "times">;
  /** Called once for each time in which the database cannot be read. */
  onError(error: unknown): void;
  everyMs?: number;
}

export class LiveAccounts {
  readonly #options: Required<LiveAccountsOptions>;
  readonly #accounts = new Map<string, Watched>();
  #timer: NodeJS.Timeout | null = null;
  #isLooking = false;
  #isFailing = false;

  constructor(options: LiveAccountsOptions) {
    this.#options = { everyMs: 1_000, ...options };
  }

  /** Number of watchers of an account. */
  count(account: string): number {
    return this.#accounts.get(account)?.watchers.size ?? 0;
  }

  /** As `watchAll`, for the requests that a session may see. */
  watch({ owner, key }: KeySession, show: (live: LiveAccount) => void): () => void {
    return this.#watch(key.account, { viewer: { owner, key }, show });
  }

  /**
   * Calls `show` with the state of now, and then once a second. Returns a function that ends
   * this.
   */
  watchAll(account: string, show: (live: LiveAccount) => void): () => void {
    return this.#watch(account, { viewer: null, show });
  }

  #watch(account: string, watcher: Watcher): () => void {
    const watched = this.#accounts.get(account) ?? {
      ...{ watchers: new Set<Watcher>(), mark: null, reading: null, changesMs: 0 },
    };
    watched.watchers.add(watcher);
    this.#accounts.set(account, watched);
    if (watched.reading !== null) watcher.show(shownTo(watcher, watched.reading));
    // An account that others watch already is read within a second anyway.
    else this.#schedule(0);
    this.#schedule(this.#options.everyMs);
    return () => {
      watched.watchers.delete(watcher);
      if (watched.watchers.size === 0 && this.#accounts.get(account) === watched)
        this.#accounts.delete(account);
    };
  }

  #schedule(afterMs: number): void {
    if (this.#isLooking || this.#accounts.size === 0) return;
    if (this.#timer !== null && afterMs > 0) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#look(), afterMs);
    // Closing the listener ends the responses, and so the watching.
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    this.#timer = null;
    this.#isLooking = true;
    try {
      await this.#readChanged();
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) this.#options.onError(error);
      this.#isFailing = true;
    }
    this.#isLooking = false;
    const isNew = [...this.#accounts.values()].some(({ reading }) => reading === null);
    this.#schedule(isNew && !this.#isFailing ? 0 : this.#options.everyMs);
  }

  async #readChanged(): Promise<void> {
    const { store } = this.#options;
    const accounts = [...this.#accounts];
    const watchers = accounts.flatMap(([, watched]) => [...watched.watchers]);
    const viewers = watchers.flatMap(({ viewer }) => viewer ?? []);
    const [marks, found] = await Promise.all([
      store.accountMarks(accounts.map(([account]) => account)),
      store.findKeys([...new Set(viewers.map(({ owner }) => owner))]),
    ]);
    const keys = new Map(found.map(({ key }) => [key.hash, key]));
    for (const viewer of viewers) viewer.key = keys.get(viewer.owner) ?? viewer.key;
    // An account that cannot be read does not keep others from being shown.
    const results = await Promise.allSettled(
      accounts.map(async ([account, watched]) => {
        const mark = marks.get(account) ?? null;
        const isSame = watched.mark === mark && store.times().atMs < watched.changesMs;
        if (!isSame || watched.reading === null) {
          // The mark was read before, so a change in between is found at the next look.
          watched.reading = await this.#read(account);
          watched.mark = mark;
          watched.changesMs = nextChangeMs(watched.reading);
        }
        for (const watcher of watched.watchers) watcher.show(shownTo(watcher, watched.reading));
      }),
    );
    for (const result of results) if (result.status === "rejected") throw result.reason;
  }

  async #read(account: string): Promise<Reading> {
    const { store } = this.#options;
    const [snapshot, holds] = await Promise.all([
      store.accountSnapshot(account),
      store.holds({ account, limit: pageRowsMax }),
    ]);
    return { balance: balanceOf(snapshot), seq: snapshot?.account.seq ?? 0, holds };
  }
}

function nextChangeMs({ balance: { base, overage, endsMs } }: Reading): EpochMs {
  return Math.min(base.endsMs, overage.endsMs, endsMs ?? Number.POSITIVE_INFINITY);
}

function shownTo({ viewer }: Watcher, { balance, seq, holds }: Reading): LiveAccount {
  const key = viewer?.key;
  const seesAll = key === undefined || key.portal === "account";
  const own = seesAll ? holds : holds.filter((hold) => hold.key === key.id);
  return { balance, seq, requests: own.toSorted((one, other) => one.createdMs - other.createdMs) };
}
