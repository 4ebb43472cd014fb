/**
 * Rows that a hand in the database has changed: the kernel refuses an account that contradicts
 * itself, and the audit finds a changed fact or row. Copies are changed, and nothing of the world.
 */
import assert from "node:assert/strict";
import { AccountFold } from "../../src/ledger/account-fold.ts";
import type { CapCounter } from "../../src/ledger/cap-rows.ts";
import { decide } from "../../src/ledger/kernel.ts";
import { runningFault } from "../../src/ledger/key-problems.ts";
import type { PlanCatalog } from "../../src/ledger/plan.ts";
import type {
  AccountRow,
  AdditionalGrant,
  ChargeRow,
  GrantRow,
  HoldRow,
  JournalRow,
  KeyRow,
  WindowGrant,
} from "../../src/ledger/rows.ts";
import type { Times } from "../../src/ledger/snapshot.ts";
import { MemoryLedger } from "../fixtures/memory-ledger.ts";
import { day } from "../fixtures/times.ts";
import type { Random } from "./random.ts";
import type { Moment } from "./row-checks.ts";

/** After the last date of JavaScript. */
const afterAllDates = 9_000_000_000_000_000;

const windowDamages: Partial<WindowGrant>[] = [
  { amountMicro: -1 },
  { spentMicro: -1 },
  { heldMicro: -1 },
  { spentMicro: 0.5 },
  { fromMs: -afterAllDates },
  { untilMs: afterAllDates },
  { anchorMs: afterAllDates },
  { untilMs: 0 },
  { version: 99 },
];

const otherDamages: Partial<AccountRow>[] = [
  ...[{ seq: 0 }, { atMs: afterAllDates }, { endsMs: afterAllDates }, { holds: -1 }, { holds: 0.5 }],
  ...[{ planSinceMs: afterAllDates }, { requestsTatMs: Number.NaN }, { tokensTatMs: Infinity }],
];

const laterDamages: Partial<AccountRow["later"]>[] = [
  { count: -1 },
  { freeMicro: -1 },
  { heldMicro: -1 },
  { freeMicro: Number.MAX_SAFE_INTEGER + 2 },
];

const additionalDamages: Partial<AdditionalGrant>[] = [
  { spentMicro: -1 },
  { heldMicro: -1 },
  { amountMicro: -1 },
  { amountMicro: 0.5 },
];

const counterDamages: Partial<CapCounter>[] = [
  ...[{ spentMicro: -1 }, { spentMicro: 0.5 }, { every: "often" }, { untilMs: 0 }],
  ...[{ fromMs: -afterAllDates }, { untilMs: afterAllDates }, { anchorMs: afterAllDates }],
];

/** Rows of an account, each with one thing that cannot be. */
function damagesOf(row: AccountRow): AccountRow[] {
  const { base, overage, additional, later, state, holds } = row;
  const damaged: AccountRow[] = otherDamages.map((damage) => ({ ...row, ...damage }));
  for (const damage of windowDamages) {
    if (base !== null) damaged.push({ ...row, base: { ...base, ...damage } });
    if (overage !== null) damaged.push({ ...row, overage: { ...overage, ...damage } });
  }
  for (const damage of laterDamages) damaged.push({ ...row, later: { ...later, ...damage } });
  const [first, ...others] = additional;
  if (first !== undefined)
    for (const damage of additionalDamages)
      damaged.push({ ...row, additional: [{ ...first, ...damage }, ...others] });
  const counter: CapCounter = {
    ...{ name: "P1D", every: "P1D", align: "opening", timezone: "UTC", spentMicro: 0 },
    ...{ fromMs: row.atMs, untilMs: row.atMs + day, anchorMs: row.atMs },
  };
  for (const damage of counterDamages)
    damaged.push({ ...row, counters: [...row.counters, { ...counter, ...damage }] });
  if (state === "closed") damaged.push({ ...row, state: "active" });
  else damaged.push({ ...row, state: "closed" }, { ...row, base: null }, { ...row, overage: null });
  if (holds === 0) {
    const running = [{ model: "m", heldMicro: 0, costMicro: 1 }];
    damaged.push({ ...row, running }, { ...row, later: { ...later, heldMicro: 1 } });
    if (base !== null && base.amountMicro > base.spentMicro)
      damaged.push({ ...row, base: { ...base, heldMicro: 1 } });
  }
  return damaged;
}

/** The kernel refuses each of them and changes nothing. */
export function checkDamages(row: AccountRow, { plans, times }: Pick<Moment, "plans" | "times">): void {
  for (const damaged of damagesOf(row)) {
    const ledger = new MemoryLedger();
    ledger.accounts.set(row.id, damaged);
    const operation = { kind: "topup", account: row.id, payment: "p", amountMicro: 1, by: "test" } as const;
    const read = ledger.read([operation], { plans, times });
    const { outcomes, changes } = decide({ ...read, later: new Map() }, [operation]);
    const what = JSON.stringify(damaged);
    assert.equal(outcomes[0]?.kind, "balance_unavailable", what);
    assert.deepEqual([changes.accounts, changes.journal], [[], []], what);
  }
}

/** All rows of an account. */
interface Facts {
  account: AccountRow;
  later: AdditionalGrant[];
  holds: HoldRow[];
  keys: KeyRow[];
  /** The keys of front ends, of the whole ledger: their holds and charges are of any account. */
  frontEnds: readonly KeyRow[];
  /** Holds of other accounts. */
  otherHolds: readonly HoldRow[];
  journal: JournalRow[];
  grants: GrantRow[];
  charges: ChargeRow[];
}

function factsOf(id: string, ledger: MemoryLedger): Facts | null {
  const account = ledger.accounts.get(id);
  if (account === undefined) return null;
  const own = <R extends { account: string }>(rows: Iterable<R>) =>
    structuredClone([...rows].filter((row) => row.account === id));
  return {
    account: structuredClone(account),
    later: structuredClone([...(ledger.later.get(id) ?? [])]),
    holds: own(ledger.holds.values()),
    keys: own(ledger.keys.values()),
    frontEnds: [...ledger.keys.values()].filter(({ actsFor }) => actsFor !== null),
    otherHolds: [...ledger.holds.values()].filter(({ account }) => account !== id),
    journal: own(ledger.journal),
    grants: own(ledger.grants),
    charges: own(ledger.charges),
  };
}

/** Returns what the audit says of the rows. */
function problemsOf(facts: Facts, plans: PlanCatalog, { atMs }: Times): string[] {
  const problems: string[] = [];
  const report = (invariant: string, row: object) => problems.push(`${invariant}: ${JSON.stringify(row)}`);
  const fold = new AccountFold(facts.account.id, {
    plans,
    frontEndKeys: new Set(facts.frontEnds.map(({ id }) => id)),
    report,
  });
  const grants = new Map(facts.grants.map((grant) => [grant.seq, grant]));
  const all = [...facts.journal, ...facts.charges].sort((one, other) => one.seq - other.seq);
  for (const fact of all)
    if ("kind" in fact) fold.add({ entry: fact, grant: grants.get(fact.seq) ?? null });
    else fold.charge(fact);
  fold.finish(facts, atMs);
  // The audit compares these keys with the holds of all accounts.
  for (const key of facts.frontEnds) {
    const own = [...facts.holds, ...facts.otherHolds].filter((hold) => hold.key === key.id);
    const fault = runningFault(key, own);
    if (fault !== null) report("holds", fault);
  }
  return problems;
}

/** Changes a row. Returns false if the account has no row to change. */
type Tampering = (facts: Facts, random: Random) => boolean;

function raised<Name extends string>(
  rowsOf: (facts: Facts) => (Record<Name, unknown> | null)[],
  ...fields: Name[]
): Tampering {
  return (facts, random) => {
    const rows = rowsOf(facts).filter((row) => row !== null);
    const field = random.pick(fields);
    const numbered = rows.filter((row) => typeof row[field] === "number");
    if (numbered.length === 0) return false;
    const row = random.pick(numbered);
    Object.assign(row, { [field]: Number(row[field]) + 1 });
    return true;
  };
}

function removed(rowsOf: (facts: Facts) => unknown[]): Tampering {
  return (facts, random) => {
    const rows = rowsOf(facts);
    if (rows.length === 0) return false;
    rows.splice(random.whole(0, rows.length - 1), 1);
    return true;
  };
}

const tamperings: Record<string, Tampering> = {
  "an entry is gone": removed(({ journal }) => journal),
  "a charge is gone": removed(({ charges }) => charges),
  "a grant is gone": removed(({ grants }) => grants),
  "a hold is gone": removed(({ holds }) => holds),
  "a key is gone": removed(({ keys }) => keys),
  "a later grant is gone": removed(({ later }) => later),
  "a number of a fact": raised(({ journal, charges }) => [...journal, ...charges], "seq"),
  // The audit knows only the beginning of a promotion that has ended.
  "the amount of an entry": raised(
    ({ journal }) => journal.filter(({ kind }) => ["window", "payment", "memo", "refund"].includes(kind)),
    "amountMicro",
  ),
  "a grant": raised(({ grants }) => grants, "amountMicro", "spentMicro"),
  "a charge": raised(
    ({ charges }) => charges,
    "costMicro",
    "baseMicro",
    "overageMicro",
    "additionalMicro",
    "shortfallMicro",
  ),
  "a payment of a charge": raised(({ charges }) => charges.flatMap(({ paid }) => paid), "amountMicro"),
  "the account": raised(({ account }) => [account], "seq", "atMs", "createdMs", "holds", "planSinceMs"),
  "a window": raised(
    ({ account: { base, overage } }) => [base, overage],
    "seq",
    "amountMicro",
    "spentMicro",
    "heldMicro",
    "fromMs",
    "untilMs",
    "anchorMs",
    "version",
  ),
  "an additional grant": raised(
    ({ account: { additional }, later }) => [...additional, ...later],
    "seq",
    "amountMicro",
    "spentMicro",
    "heldMicro",
    "untilMs",
  ),
  "sums of later grants": raised(({ account: { later } }) => [later], "count", "freeMicro", "heldMicro"),
  "what a hold takes": raised(({ holds }) => holds.flatMap(({ takings }) => takings), "amountMicro"),
  "a checkpoint": raised(
    ({ holds }) => holds.filter(({ priceCompletion }) => priceCompletion > 0),
    "completionTokens",
  ),
  "a key": raised(
    ({ keys }) => keys.filter(({ actsFor }) => actsFor === null),
    ...(["holds", "createdMs", "revokedMs", "expiresMs", "requestsPerMinute", "concurrent"] as const),
  ),
  "a counter of a cap": raised(
    ({ account, keys }) =>
      [account, ...keys.filter(({ actsFor }) => actsFor === null)].flatMap(({ counters }) => counters),
    ...(["spentMicro", "fromMs", "untilMs", "anchorMs"] as const),
  ),
  "what runs on a model": raised(
    ({ account, keys }) =>
      [account, ...keys.filter(({ actsFor }) => actsFor === null)].flatMap(({ running }) => running),
    ...(["heldMicro", "costMicro"] as const),
  ),
  "a cap of a key": raised(
    ({ keys }) => keys.flatMap(({ caps }) => caps),
    ...(["amountMicro", "sinceMs"] as const),
  ),
  "the state": ({ account }) => {
    account.state = account.state === "suspended" ? "active" : "suspended";
    return true;
  },
  "the scheduled plan": ({ account }) => {
    account.nextPlan = account.nextPlan === null ? "other" : null;
    return true;
  },
  "the end": ({ account }) => {
    account.endsMs = account.endsMs === null ? account.atMs + day : null;
    return true;
  },
  "a cap without its period": ({ journal }) => {
    // Later changes may leave the period as it is.
    const first = journal.find(({ kind, after }) => kind === "key" && after?.includes('"every":"') === true);
    if (first === undefined) return false;
    first.after = first.after?.replace(/"every":"[^"]+"/, '"every":null') ?? null;
    return true;
  },
  "nobody did it": ({ journal }, random) => {
    random.pick(journal).by = "";
    return true;
  },
};

/** The audit finds nothing, and then each of the changes. */
export function checkAudit(id: string, { ledger, plans, times }: Moment, random: Random): void {
  const facts = factsOf(id, ledger);
  if (facts === null) return;
  assert.deepEqual(problemsOf(facts, plans, times), [], `the audit of ${id}`);
  for (const [name, tamper] of Object.entries(tamperings)) {
    const changed = structuredClone(facts);
    if (!tamper(changed, random)) continue;
    const problems = problemsOf(changed, plans, times);
    assert.ok(problems.length > 0, `the audit of ${id} does not find: ${name}`);
  }
}
