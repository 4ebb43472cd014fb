/**
 * The live state of accounts for pages of the portal and the console: balance and running requests
 * at the checkpoints of the ledger. Any process may have written these.
 *
 * However many pages follow accounts, one statement finds the accounts that have changed, and each
 * of these is read once. The rights of a key are read again each time.
 */
import { invariant } from "../errors.ts";
import { type BalanceView, balanceOf } from "../ledger/balance.ts";
import type { HoldRow, KeyRow } from "../ledger/rows.ts";
import { pageRowsMax, type Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";

export interface LiveTopic {
  account: string;
  /**
   * SHA-256 of the key of a session, which sees what its key may see. Null sees the whole account:
   * an operator or a person.
   */
  owner: string | null;
}

export interface LiveAccount {
  balance: BalanceView;
  /**
   * Number of the newest journal entry of the account: a request that began and ended between two
   * reads has changed it, and perhaps nothing else.
   */
  seq: number;
  /** Running requests that the viewer may see, oldest first. */
  requests: readonly HoldRow[];
}

interface Reading extends LiveAccount {
  mark: string | null;
  /** The balance changes then by itself: a window refreshes, or the account closes. */
  changesMs: EpochMs;
  /** When this was last known to be the state of the account. Monotonic. */
  checkedMs: number;
}

type LiveStore = Pick<Store, "accountMarks" | "findKeys" | "accountSnapshot" | "holds" | "times">;

/** Accounts that nobody has followed for this time are forgotten. */
const keptMs = 10_000;

export class LiveAccounts {
  readonly #store: LiveStore;
  readonly #readings = new Map<string, Reading>();

  constructor(store: LiveStore) {
    this.#store = store;
  }

  /** Returns the state of each topic, as it was at most `ageMsMax` ago. */
  read(topics: readonly LiveTopic[], ageMsMax: number): Promise<LiveAccount>[] {
    const nowMs = performance.now();
    const isOlder = ({ checkedMs }: Reading, ageMs: number) => nowMs - checkedMs >= ageMs;
    for (const [account, reading] of this.#readings)
      if (isOlder(reading, keptMs)) this.#readings.delete(account);
    const keys = this.#keysOf([...new Set(topics.flatMap(({ owner }) => owner ?? []))]);
    const kept = new Map([...this.#readings].filter(([, reading]) => !isOlder(reading, ageMsMax)));
    const accounts = [...new Set(topics.map(({ account }) => account))].filter((each) => !kept.has(each));
    const marks = accounts.length === 0 ? null : this.#store.accountMarks(accounts);
    const read = new Map(accounts.map((account) => [account, this.#read(account, marks, nowMs)]));
    return topics.map(async ({ account, owner }) => {
      const [found, reading] = await Promise.all([keys, read.get(account) ?? kept.get(account)]);
      invariant(reading !== undefined, "an account is kept or read");
      const { requests } = reading;
      const key = owner === null ? null : found.get(owner);
      if (key === null || key?.portal === "account") return reading;
      // A session whose key has another secret now ends in a moment.
      return { ...reading, requests: requests.filter((hold) => hold.key === key?.id) };
    });
  }

  async #keysOf(owners: readonly string[]): Promise<ReadonlyMap<string, KeyRow>> {
    const found = owners.length === 0 ? [] : await this.#store.findKeys(owners);
    return new Map(found.map(({ key }) => [key.hash, key]));
  }

  async #read(
    account: string,
    marks: Promise<ReadonlyMap<string, string>> | null,
    checkedMs: number,
  ): Promise<Reading> {
    // The mark is read first, so a change in between is found at the next time.
    const mark = (await marks)?.get(account) ?? null;
    const before = this.#readings.get(account);
    const isSame = before?.mark === mark && this.#store.times().atMs < before.changesMs;
    const reading = isSame
      ? { ...before, checkedMs }
      : { ...(await this.#stateOf(account)), mark, checkedMs };
    this.#readings.set(account, reading);
    return reading;
  }

  async #stateOf(account: string): Promise<Omit<Reading, "mark" | "checkedMs">> {
    const [snapshot, holds] = await Promise.all([
      this.#store.accountSnapshot(account),
      this.#store.holds({ account, limit: pageRowsMax }),
    ]);
    const balance = balanceOf(snapshot);
    const { base, overage, endsMs } = balance;
    return {
      balance,
      seq: snapshot?.account.seq ?? 0,
      requests: holds.toSorted((one, other) => one.createdMs - other.createdMs),
      changesMs: Math.min(base.endsMs, overage.endsMs, endsMs ?? Number.POSITIVE_INFINITY),
    };
  }
}
