/**
 * The audit of a ledger: it computes each account again from its facts
 * (ledger/account-fold.ts), and compares sums over whole tables.
 *
 * Guarantees that every account is checked in one state of the database, in memory that does not
 * grow with the ledger. The steps are the same on both stores, which read what a step asks for.
 */
import { messageOf } from "../errors.ts";
import { AccountFold, type FoldedInvariant, foldedInvariants } from "../ledger/account-fold.ts";
import { covers, isSameCap } from "../ledger/caps.ts";
import { runningFault } from "../ledger/key-problems.ts";
import { offeredPlans, type PlanCatalog } from "../ledger/plan.ts";
import { plansFingerprintOf } from "../ledger/plan-section.ts";
import type { EpochMs } from "../units.ts";
import { accountRowIn, numberIn } from "./account-rows.ts";
import { type AuditReport, type FaultyRow, faultyRowsMax } from "./audit-report.ts";
import { byLink } from "./links.ts";
import { readFiles, readVersions } from "./plans.ts";
import type { Seal, SealedList } from "./seal.ts";
import { Sealing } from "./sealing.ts";
import type { SqlStatement } from "./sql.ts";
import type { Table } from "./table.ts";
import {
  accountTable,
  chargeTable,
  grantTable,
  holdTable,
  journalTable,
  keyTable,
  laterGrantTable,
  planFileTable,
  planVersionTable,
} from "./tables.ts";
import { closeFaults, finalInOrder, readCloses, readSummed, usageRules } from "./usage-steps.ts";

/** A report with the lists of facts, for a seal. */
export interface SealedReport extends AuditReport {
  lists: readonly SealedList[];
}

/** Facts that are read at a time. */
const chunkFacts = 20_000;
const chunkAccounts = 1000;

const readable = "every row can be read";
const asApplied = "the current plans are those that were applied";
const inOrder = "ledger time is not after elapsed time";
const unchanged = "everything that was sealed is still there, unchanged";

/** Sums over whole tables. Each selects the rows at fault. */
const rules: Readonly<Record<string, string>> = {
  "every row is of an account": ["journal", "credit_grant", "charge", "hold", "api_key", "later_grant"]
    .map(
      (table) => `select '${table}' as found_in, account from ${table} r
        where not exists (select 1 from account a where a.id = r.account)`,
    )
    .join(" union all "),
  "every grant has its entry": `select g.account, g.seq from credit_grant g
    where not exists (select 1 from journal j where j.account = g.account and j.seq = g.seq)`,
  "memos of a request are at most what was paid for it": `select m.account, m.request_id, m.memos, p.paid from (
      select account, request_id, sum(amount) as memos from credit_grant where request_id is not null group by 1, 2
    ) m left join (
      select account, id, sum(base + overage + additional) as paid from charge
      where id in (select request_id from credit_grant where request_id is not null) group by 1, 2
    ) p on p.account = m.account and p.id = m.request_id
    where p.paid is null or m.memos > p.paid`,
  "a request has one charge, and a late one only after its hold expired": `
    select account, id, count(*) as charges from charge group by account, id
    having count(*) > 1 and (count(*) > 2 or sum(case when late then 1 else 0 end) <> 1
      or sum(case when ending = 'expired' then 1 else 0 end) < 1)`,
  // Thresholds are settings, which nobody records: what was low is not computed again.
  "each event of an account follows from its fact": `
    select e.account, e.seq, e.type from event e left join account a on a.id = e.account
    left join journal j on j.account = e.account and j.seq = e.seq
    where e.account is not null and (a.id is null or e.seq > a.seq or case e.type
      when 'payment.added' then j.kind is distinct from 'payment'
      when 'payment.refunded' then j.kind is distinct from 'refund'
      when 'key.created' then j.kind is distinct from 'key'
      when 'key.revoked' then j.kind is distinct from 'key'
      when 'account.opened' then j.kind is distinct from 'open'
      when 'account.suspended' then j.kind is distinct from 'suspend'
      when 'account.resumed' then j.kind is distinct from 'resume'
      when 'account.closed' then j.kind is distinct from 'close'
      when 'account.plan_changed' then j.kind is distinct from 'plan'
      else false end)`,
  "an event is written once": `select account, seq, type, count(*) as events from event
    where account is not null and cause is null group by account, seq, type, data having count(*) > 1`,
  // Entries of journals are checked with their account.
  "every change names who made it": [
    ["plan_file", "epoch"],
    ["change_log", "id"],
    ["operator_key", "id"],
  ]
    .map(
      ([table, id]) => `select '${table}' as found_in, cast(${id} as text) as id from ${table} where by = ''`,
    )
    .join(" union all "),
  "a link has taken as many seats as it has accounts, and at most its seats": `
    select id, seats, taken, joined from (
      select l.id, l.seats, l.taken,
        (select count(*) from link_seat s where s.link = l.id and s.account is not null) as joined from link l
    ) t where taken <> joined or taken > seats`,
  // The opening is the first entry of an account.
  "an account has a seat of the link that has opened it, and no other account has one": `
    select s.link, s.account, j.by from link_seat s left join journal j on j.account = s.account and j.seq = 1
      where s.account is not null and j.by is distinct from '${byLink("")}' || s.link
    union all
    select null, j.account, j.by from journal j where j.seq = 1 and j.by like '${byLink("%")}' and not exists (
      select 1 from link_seat s where s.account = j.account and '${byLink("")}' || s.link = j.by)`,
  "a request is open or has a charge, and not both": `select h.account, h.id from hold h
    join charge c on c.id = h.id and c.account = h.account`,
};

const isOfFrontEnd = "acts_for_name is not null";
const readFrontEndKeys = `select id from api_key where ${isOfFrontEnd}`;

/** What a step of the audit reads. */
export type AuditStep =
  | { kind: "rows"; statement: SqlStatement }
  /** Rows at fault, by column. */
  | { kind: "rule"; invariant: string; sql: string }
  /** The rows after it are of one state, which is newer. Its answer has the plans. */
  | { kind: "snapshot" };

export type AuditAnswer =
  | { kind: "rows"; rows: readonly (readonly unknown[])[] }
  | { kind: "rule"; rows: FaultyRow[] }
  | { kind: "snapshot"; plans: PlanCatalog };

interface ReadingSteps {
  read(text: string, values: SqlStatement["values"]): Generator<AuditStep, unknown[][], AuditAnswer>;
  rowsOf<R>(table: Table<R>, rows: readonly unknown[][], from?: number): R[];
  report(invariant: string, row: FaultyRow): void;
}

/** Yields what to read, and returns what is broken. */
export function* auditSteps(
  p: (n: number) => string,
  { checkedMs, against }: { checkedMs: EpochMs; against: Seal | null },
): Generator<AuditStep, Pick<SealedReport, "broken" | "lists">, AuditAnswer> {
  const faults = new Map<string, FaultyRow[]>();
  const report = (invariant: string, row: FaultyRow) => {
    const rows = faults.get(invariant) ?? [];
    if (rows.length < faultyRowsMax) rows.push(row);
    faults.set(invariant, rows);
  };
  const read = function* (
    text: string,
    values: SqlStatement["values"],
  ): Generator<AuditStep, unknown[][], AuditAnswer> {
    const answer = yield { kind: "rows", statement: { text, values } };
    return answer.kind === "rows" ? answer.rows.map((cells) => cells.map(numberIn)) : [];
  };
  const rowsOf = <R>(table: Table<R>, rows: readonly unknown[][], from = 0): R[] =>
    rows.flatMap((cells) => {
      try {
        return [table.rowOf(cells, from)];
      } catch (error) {
        report(readable, { table: table.name, account: String(cells[from]), problem: messageOf(error) });
        return [];
      }
    });

  const sealing = new Sealing(against, (row) => report(unchanged, row));
  yield { kind: "snapshot" };
  const sections = rowsOf(planFileTable, yield* read(readFiles, []));
  sealing.begin("sections");
  for (const section of sections) sealing.add(section.epoch, planFileTable.valuesOf(section));
  const current = sections.at(-1);
  let plan = "";
  for (const version of rowsOf(planVersionTable, yield* read(readVersions, []))) {
    if (version.plan !== plan) sealing.begin(`plan ${version.plan}`);
    plan = version.plan;
    sealing.add(version.version, planVersionTable.valuesOf(version));
  }
  const [clock = []] = yield* read("select ledger_ms, elapsed_ms from clock", []);
  const [ledgerMs = 0, elapsedMs = -1] = clock.map(Number);
  const nowMs = Math.max(checkedMs, ledgerMs);
  // So it is in each record, whatever the clock did. A record that is gone has no time.
  if (ledgerMs > elapsedMs) report(inOrder, { ledgerMs, elapsedMs });
  // Before everything that takes long: a day that ends meanwhile is final later.
  const closes = yield* read(readCloses, []);
  const [summed = []] = yield* read(readSummed, []);
  for (const fault of closeFaults(closes, summed, nowMs)) report(finalInOrder, fault);
  sealing.begin("days");
  for (const close of closes) sealing.add(Number(close[0]), close);
  let arePlansChecked = false;
  for (let after = ""; ; ) {
    // With the list, so that no account grows beyond a chunk.
    const answer = yield { kind: "snapshot" };
    const listed = yield* read(
      `select id, seq from account where id > ${p(1)} order by id limit ${chunkAccounts}`,
      [after],
    );
    let [count, facts] = [0, 0];
    for (const [, seq] of listed) {
      if (count > 0 && facts + Number(seq) > chunkFacts) break;
      count += 1;
      facts += Number(seq);
    }
    const last = listed[count - 1]?.[0];
    if (last === undefined) break;
    const range = [after, String(last)];
    after = String(last);
    const plans = answer.kind === "snapshot" ? answer.plans : null;
    if (plans === null) break;
    if (!arePlansChecked && plans.epoch === current?.epoch) {
      for (const [plan, problem] of plans.damaged) {
        report(readable, { table: planVersionTable.name, plan, problem });
      }
      if (plans.damaged.size === 0 && !isPrinted(plans, current.fingerprint)) {
        report(asApplied, { epoch: current.epoch, fingerprint: current.fingerprint });
      }
      arePlansChecked = true;
    }
    const within = (column: string) => `${column} > ${p(1)} and ${column} <= ${p(2)}`;
    const of = <R extends { account: string }>(rows: readonly R[]) =>
      Map.groupBy(rows, ({ account }) => account);
    const accounts = (yield* read(
      `select ${accountTable.list()} from account where ${within("id")} order by id`,
      range,
    )).map(accountRowIn);
    const [[recordedMs] = [0]] = yield* read("select ledger_ms from clock", []);
    const frontEndKeys = new Set((yield* read(readFrontEndKeys, [])).map(([id]) => String(id)));
    const [highest] = yield* read(
      `select max(seq) from (
        select max(seq) as seq from journal where ${within("account")}
        union all select max(seq) from charge where ${within("account")}) m`,
      range,
    );
    const folds = new Map(
      accounts.map(({ row }) => [
        row.id,
        new AccountFold(row.id, {
          plans,
          frontEndKeys,
          report: (invariant: FoldedInvariant, fault) => report(foldedInvariants[invariant], fault),
        }),
      ]),
    );
    for (let from = 0; from <= Number(highest?.[0] ?? 0); from += chunkFacts) {
      const part = [...range, from, from + chunkFacts];
      const numbered = `and r.seq > ${p(3)} and r.seq <= ${p(4)} order by r.account, r.seq`;
      const entryCells = yield* read(
        `select ${journalTable.list("r")}, ${grantTable.list("g")} from journal r
        left join credit_grant g on g.account = r.account and g.seq = r.seq
        where ${within("r.account")} ${numbered}`,
        part,
      );
      const chargeCells = yield* read(
        `select ${chargeTable.list("r")} from charge r where ${within("r.account")} ${numbered}`,
        part,
      );
      const grantAt = journalTable.columns.length;
      const entries = of(
        entryCells.flatMap((cells) => {
          const [entry] = rowsOf(journalTable, [cells]);
          const [grant = null] = cells[grantAt] === null ? [] : rowsOf(grantTable, [cells], grantAt);
          return entry === undefined ? [] : [{ account: entry.account, seq: entry.seq, entry, grant }];
        }),
      );
      const charges = of(rowsOf(chargeTable, chargeCells));
      for (const [account, fold] of folds) {
        if (from === 0) sealing.begin(`account ${account}`);

        addInOrder({ fold, sealing }, entries.get(account) ?? [], charges.get(account) ?? []);
      }
    }
    const readAll = function* <R extends { account: string }>(table: Table<R>) {
      const text = `select ${table.list()} from ${table.name} where ${within("account")}`;
      return of(rowsOf(table, yield* read(text, range)));
    };
    const holds = yield* readAll(holdTable);
    const keys = yield* readAll(keyTable);
    const later = yield* readAll(laterGrantTable);
    for (const { row, problem } of accounts) {
      if (problem !== null) {
        report(readable, { table: "account", account: row.id, problem });
        continue;
      }
      folds.get(row.id)?.finish(
        {
          account: row,
          holds: holds.get(row.id) ?? [],
          keys: keys.get(row.id) ?? [],
          later: later.get(row.id) ?? [],
        },
        Math.max(nowMs, Number(recordedMs)) + toleranceMs,
      );
    }
  }
  yield { kind: "snapshot" };
  yield* frontEndSteps(p, { read, rowsOf, report });
  const sums = usageRules(yield* read(readCloses, []), summed, nowMs);
  for (const [invariant, sql] of Object.entries({ ...rules, ...sums })) {
    const answer = yield { kind: "rule", invariant, sql: `${sql} limit ${faultyRowsMax}` };
    if (answer.kind === "rule") for (const row of answer.rows) report(invariant, row);
  }
  sealing.finish();
  return { broken: [...faults].map(([invariant, rows]) => ({ invariant, rows })), lists: sealing.lists };
}

/**
 * Nodes differ by less in what they call now. So a window can have charges from before its begin,
 * and a cap can miss charges from after it was set. A promotion can end after the last record of
 * the clock.
 */
const toleranceMs = 60_000;

/**
 * Checks the keys of front ends over all accounts: what they hold, and that their caps have
 * counted each charge of their windows.
 */
function* frontEndSteps(
  p: (n: number) => string,
  { read, rowsOf, report }: ReadingSteps,
): Generator<AuditStep, void, AuditAnswer> {
  const keys = rowsOf(
    keyTable,
    yield* read(`select ${keyTable.list()} from api_key where ${isOfFrontEnd}`, []),
  );
  if (keys.length === 0) return;
  const ofThem = `key in (${readFrontEndKeys})`;
  const holds = rowsOf(holdTable, yield* read(`select ${holdTable.list()} from hold where ${ofThem}`, []));
  for (const key of keys) {
    const own = holds.filter((hold) => hold.key === key.id);
    const fault = runningFault(key, own);
    if (fault !== null) report(foldedInvariants.holds, { account: key.account, key: key.id, ...fault });
    for (const cap of key.caps) {
      const counter = key.counters.find((each) => isSameCap(each, cap));
      if (counter === undefined) continue;
      const charges = yield* read(chargedInWindow(p), [key.id, counter.fromMs, counter.untilMs]);
      const charged = charges
        .filter(([model]) => covers(cap, String(model)))
        .reduce((sum, [, micro]) => sum + Number(micro), 0);
      if (counter.spentMicro >= charged) continue;
      const fields = { field: `cap ${cap.name}`, found: counter.spentMicro, expected: charged };
      report(foldedInvariants.keys, { account: key.account, key: key.id, ...fields });
    }
  }
}

function chargedInWindow(p: (n: number) => string): string {
  return `
    select c.model, sum(c.base + c.overage + c.additional) from charge c where c.key = ${p(1)}
      and c.at_ms - ${toleranceMs} > ${p(2)} and c.at_ms < ${p(3)}
      and c.at_ms - ${toleranceMs} > (select max(j.at_ms) from journal j where j.kind = 'key' and j.subject = ${p(1)})
    group by c.model`;
}

function isPrinted(plans: PlanCatalog, fingerprint: string): boolean {
  return plansFingerprintOf(offeredPlans(plans)) === fingerprint;
}

type Entry = Parameters<AccountFold["add"]>[0] & { seq: number };

/** Adds entries and charges in the order of their numbers. */
function addInOrder(
  { fold, sealing }: { fold: AccountFold; sealing: Sealing },
  entries: readonly Entry[],
  charges: readonly Parameters<AccountFold["charge"]>[0][],
): void {
  const add = ({ seq, entry, grant }: Entry) => {
    fold.add({ entry, grant });
    sealing.add(seq, [journalTable.valuesOf(entry), grant && grantTable.valuesOf(grant)]);
  };
  let n = 0;
  for (const charge of charges) {
    for (let entry = entries[n]; entry !== undefined && entry.seq <= charge.seq; entry = entries[n]) {
      add(entry);
      n += 1;
    }
    fold.charge(charge);
    sealing.add(charge.seq, chargeTable.valuesOf(charge));
  }
  for (const entry of entries.slice(n)) add(entry);
}
