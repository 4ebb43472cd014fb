/**
 * The list of all changes, with the values that each has replaced and set. Journals have what was
 * set; what was there before follows from the entries before.
 */
import { applyKeyFact } from "../ledger/key-facts.ts";
import type { PlanCatalog } from "../ledger/plan.ts";
import { type KeyRow, limitsIn } from "../ledger/rows.ts";
import type { ChangesQuery, LoggedChange } from "../store/change-log.ts";
import { type ListedEntry, pageRowsMax, type Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { isoTime, isoTimeOrNull } from "./json-objects.ts";

type Values = Record<string, unknown>;

export interface ShownChange extends Omit<LoggedChange, "before" | "after"> {
  /** Null: there was nothing before, or the change is an amount. */
  before: Values | null;
  after: Values | null;
}

type LogStore = Pick<Store, "changes" | "journal" | "plans">;

/** Entries whose values follow from the entries before. */
const folded = ["open", "plan", "suspend", "resume", "end", "close", "key"] as const;
/** Of an account with more entries, the later changes are shown without values. */
const entriesMax = 10 * pageRowsMax;

/** Lists changes, newest first. */
export async function shownChanges(store: LogStore, query: ChangesQuery): Promise<ShownChange[]> {
  const rows = await store.changes(query);
  const ofJournals = Map.groupBy(
    rows.filter(({ source, kind }) => source === "journal" && folded.some((each) => each === kind)),
    ({ account }) => account ?? "",
  );
  // The values say what the note of such an entry says.
  const values = new Map<LoggedChange, Pick<ShownChange, "subject" | "note" | "before" | "after">>();
  for (const [account, changes] of ofJournals) {
    const bySeq = new Map(changes.map((change) => [seqOf(change), change]));
    for (const [seq, changed] of await valuesOf(store, account, new Set(bySeq.keys()))) {
      const change = bySeq.get(seq);
      if (change !== undefined) values.set(change, { ...changed, note: null });
    }
  }
  const plans = rows.some(({ source }) => source === "plans") ? await store.plans() : null;
  return rows.map((row) => ({ ...row, ...(values.get(row) ?? otherValues(row, plans)) }));
}

function seqOf({ place }: LoggedChange): number {
  return Number(place.split(":").at(-1));
}

/** The values of a change whose row has them, or whose row is an amount. */
function otherValues(row: LoggedChange, plans: PlanCatalog | null) {
  const { source, kind, atMs, note, subject } = row;
  const [before, after] = [parsed(row.before), parsed(row.after)];
  if (source === "plans") {
    const versions = (names: unknown, untilMs: EpochMs) => ({ plans: versionsOf(plans, names, untilMs) });
    return { subject, before: versions(before, atMs - 1), after: versions(after, atMs) };
  }
  if (source === "clock") {
    const ledgerMs = Number(note);
    return {
      subject,
      note: null,
      before: { ledger_at: isoTime(ledgerMs) },
      after: { clock_at: isoTime(atMs) },
    };
  }
  const isPayment = source === "journal" && (kind === "payment" || kind === "refund");
  return { subject: isPayment ? note : subject, before: asValues(before), after: asValues(after) };
}

function parsed(text: string | null): unknown {
  return text === null ? null : JSON.parse(text);
}

function asValues(value: unknown): Values | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : null;
}

/** The version that each plan had at a time. */
function versionsOf(catalog: PlanCatalog | null, names: unknown, untilMs: EpochMs): Values {
  const ids = Array.isArray(names) ? names.map(String) : [];
  const versions = ids.map((id) => {
    const known = catalog?.versions.get(id)?.findLast(({ createdMs }) => createdMs <= untilMs);
    return [id, known?.version ?? null] as const;
  });
  return Object.fromEntries(versions);
}

/** Returns the values of the entries with these numbers. */
async function valuesOf(store: LogStore, account: string, wanted: ReadonlySet<number>) {
  const last = Math.max(...wanted);
  const found = new Map<number, Pick<ShownChange, "subject" | "before" | "after">>();
  const fold = new AccountValues();
  for (let afterSeq = 0, read = 0; afterSeq < last && read < entriesMax; ) {
    const query = { kinds: folded, afterSeq, limit: pageRowsMax };
    const entries = await store.journal(account, query);
    for (const entry of entries) {
      const values = fold.apply(entry);
      if (wanted.has(entry.seq)) found.set(entry.seq, values);
    }
    read += entries.length;
    afterSeq = entries.length < query.limit ? last : (entries.at(-1)?.seq ?? last);
  }
  return found;
}

/** The state, the plan and the keys of an account, entry by entry. */
class AccountValues {
  #account: Values = {};
  readonly #keys = new Map<string, KeyRow>();

  /** Returns what the entry has changed. */
  apply(entry: ListedEntry): Pick<ShownChange, "subject" | "before" | "after"> {
    const { kind, note } = entry;
    if (kind === "key") {
      const [id = ""] = (note ?? "").split(" ", 1);
      const before = keyValues(this.#keys.get(id));
      applyKeyFact(this.#keys, { ...entry, kind });
      return { subject: id, ...differing(before, keyValues(this.#keys.get(id))) };
    }
    const before = kind === "open" ? null : this.#account;
    this.#account = { ...this.#account, ...accountChange(entry, this.#account) };
    return { subject: null, ...differing(before, this.#account) };
  }
}

function accountChange({ kind, note }: ListedEntry, { plan: present }: Values): Values {
  const [plan = "", ...when] = (note ?? "").split(" ");
  switch (kind) {
    case "open":
      return { plan: note, next_plan: null, state: "active", ends_at: null };
    case "plan":
      if (when.join(" ") !== "at refresh") return { plan, next_plan: null };
      return { next_plan: plan === present ? null : plan };
    case "suspend":
      return { state: "suspended" };
    case "resume":
      return { state: "active" };
    case "close":
      return { state: "closed", next_plan: null };
    default:
      return { ends_at: note === "no end" ? null : note };
  }
}

function keyValues(key: KeyRow | undefined): Values | null {
  if (key === undefined) return null;
  const { name, models, portal, expiresMs, revokedMs, hash, actsFor } = key;
  const { requestsPerMinute, tokensPerMinute, concurrent } = limitsIn(key);
  return {
    ...{ name, models, portal, expires_at: isoTimeOrNull(expiresMs), revoked_at: isoTimeOrNull(revokedMs) },
    ...{ requests_per_minute: requestsPerMinute, tokens_per_minute: tokensPerMinute, concurrent },
    budget: budgetValues(key),
    acts_for: actsFor,
    /** The beginning of its hash, to tell secrets apart. */
    secret: hash.slice(0, 8),
  };
}

function budgetValues(key: KeyRow): Values | null {
  const { budgetMicro, budgetEvery, budgetAlign, budgetTimezone } = key;
  if (budgetMicro === null) return null;
  return { micro: budgetMicro, every: budgetEvery, align: budgetAlign, timezone: budgetTimezone };
}

/** Returns the values that differ, as they were and as they are. */
function differing(before: Values | null, after: Values | null): Pick<ShownChange, "before" | "after"> {
  if (before === null || after === null) return { before, after };
  const names = Object.keys(after).filter(
    (name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]),
  );
  const partOf = (values: Values) => Object.fromEntries(names.map((name) => [name, values[name]]));
  return { before: partOf(before), after: partOf(after) };
}
