/**
 * Imports a list of accounts: opens the accounts that are missing, with the balances that they
 * bring along, and sets the contacts of the others.
 *
 * The whole list is checked first. All problems are reported at once, each with its place: those
 * of its values and those that only the database knows. Nothing is written then. A sound list is
 * written in steps, each completely or not at all, and between two steps other accounts have the
 * database to themselves. A repetition completes an import that was stopped, and changes nothing
 * that was written before.
 */
import { setTimeout } from "node:timers/promises";
import type { BalanceFault, OpeningBalances, OpeningWindow } from "../ledger/opening.ts";
import type { NewKey } from "../ledger/operations.ts";
import { type WindowBucket, windowBuckets } from "../ledger/rows.ts";
import { defined } from "../objects.ts";
import { unknownName } from "../spelling.ts";
import type { AccountDraft, DraftOutcome } from "../store/contacts.ts";
import type { Store } from "../store/store.ts";
import { creditsMax, exactCredits, localMomentOf, microOf, momentOf, momentRule } from "../units.ts";
import { isoTime } from "./json-objects.ts";
import * as fields from "./value-rules.ts";

/** Accounts in one import. */
export const importedAccountsMax = 100_000;

/** Problems that an answer shows. */
export const importProblemsShown = 20;

/** Accounts of the first step, of the smallest and of the largest one. */
const stepAccounts = { first: 100, min: 25, max: 500 };

/** How long a step should take. */
const stepMs = 30;

/**
 * A process that waits for an SQLite file looks every 25 ms whether it is free. If it has waited
 * for longer than 100 ms, it looks every 100 ms.
 */
const pauseMs = (tookMs: number) => (tookMs <= 100 ? 30 : 110);

/** The fields of what an account brings along. */
export const balanceFields = [
  ...(["base_left", "base_start", "overage_left", "overage_start", "additional", "payment"] as const),
];
type BalanceField = (typeof balanceFields)[number];

/** An account of a list. */
export interface ImportedAccount extends Pick<AccountDraft, "id" | "plan" | "contact"> {
  /** As the list has them. */
  balances: { [F in BalanceField]?: string };
}

export const leftRule = `whole credits from 0 to ${creditsMax}`;
export const additionalRule = `whole credits from 1 to ${creditsMax}`;
export const startRule = `a day, which begins in the time zone of the configuration, or a time: ${momentRule}`;

/** Completes `"TEXT" ...` if no account can have this value. */
type Rule = (text: string) => string | null;

/** The fields of a list, with their rules. */
const rules = {
  id: textRule(fields.name),
  plan: textRule(fields.name),
  owner: textRule(fields.contact),
  email: textRule(fields.email),
  note: textRule(fields.remark),
  external_id: idRule(fields.contact),
  base_left: creditsRule(0, leftRule),
  base_start: momentOrDay,
  overage_left: creditsRule(0, leftRule),
  overage_start: momentOrDay,
  additional: creditsRule(1, additionalRule),
  payment: idRule(fields.note),
} as const satisfies Record<string, Rule>;

export type ImportField = keyof typeof rules;
const importFields = Object.keys(rules) as ImportField[];

function textRule({ pattern, rule }: fields.TextField): Rule {
  return (text) => (pattern.test(text) ? null : `must be ${rule}`);
}

function idRule(field: fields.TextField): Rule {
  return (text) => fields.idProblem(text) ?? textRule(field)(text);
}

function creditsRule(min: number, rule: string): Rule {
  const isCredits = (text: string) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= creditsMax;
  return (text) => (isCredits(text) ? null : `must be ${rule}`);
}

function momentOrDay(text: string): string | null {
  return momentOf(text) === null ? `must be ${startRule}` : null;
}

export interface ImportProblem {
  /** Index in the list. */
  index: number;
  field: ImportField;
  message: string;
}

export interface ImportLine {
  id: string;
  result: "opened" | "updated" | "unchanged";
  /** The plan of the account. */
  plan: string;
  /** The account exists, and has another plan than the list. It keeps it. */
  planDiffers: boolean;
  /** The account exists, and the list has balances. They change nothing. */
  balancesIgnored: boolean;
}

/** `lines`: the accounts of the steps that were written. */
export type ImportResult =
  | { kind: "done"; dryRun: boolean; lines: ImportLine[] }
  /** The check has found problems, or a step because the ledger has changed since the check. */
  | { kind: "refused"; problems: ImportProblem[]; lines: ImportLine[] }
  /** A step has failed. It may be written all the same. */
  | { kind: "failed"; error: unknown; lines: ImportLine[] };

export interface ImportOptions {
  by: string;
  dryRun: boolean;
  /** For days without a time. */
  timezone: string;
  /** Returns the first keys of new accounts. Called once, after the check. */
  issueKeys: ((accounts: readonly string[]) => Promise<ReadonlyMap<string, NewKey>>) | null;
}

export async function importAccounts(
  store: Pick<Store, "putAccounts">,
  accounts: readonly ImportedAccount[],
  { by, dryRun, timezone, issueKeys }: ImportOptions,
): Promise<ImportResult> {
  const faults = [...accounts.flatMap(faultsOf), ...doublesIn(accounts)];
  const faultyFields = Map.groupBy(faults, ({ index }) => index);
  const sound = accounts.flatMap((account, index): Draft[] => {
    const faulty = new Set(faultyFields.get(index)?.map(({ field }) => field));
    return faulty.has("id") ? [] : [{ index, faulty, draft: soundPart(account, faulty, timezone) }];
  });
  const put = async (step: readonly Draft[], options: { dryRun: boolean }) => {
    const drafts = step.map(({ draft }) => draft);
    const outcomes = await store.putAccounts(drafts, { by, updatesExisting: true, ...options });
    const problems = step.flatMap((each, n) => problemsOf(each, outcomes[n]));
    return { problems, lines: drafts.map((draft, n) => lineOf(draft, outcomes[n])) };
  };

  const problems = [...faults];
  const lines: ImportLine[] = [];
  // A list with faults is tried, too: the database finds the other problems.
  for await (const step of stepsOf(sound)) {
    const checked = await put(step, { dryRun: true });
    problems.push(...checked.problems);
    lines.push(...checked.lines);
  }
  if (problems.length > 0) {
    problems.sort((one, other) => one.index - other.index);
    return { kind: "refused", problems, lines: [] };
  }
  if (dryRun) return { kind: "done", dryRun, lines };

  const opened = lines.flatMap(({ id, result }) => (result === "opened" ? [id] : []));
  const keys = await issueKeys?.(opened);
  lines.length = 0;
  for await (const step of stepsOf(sound)) {
    for (const { draft } of step) draft.key = keys?.get(draft.id) ?? null;
    try {
      const written = await put(step, { dryRun: false });
      if (written.problems.length > 0) return { kind: "refused", problems: written.problems, lines };
      lines.push(...written.lines);
    } catch (error) {
      return { kind: "failed", error, lines };
    }
  }
  return { kind: "done", dryRun, lines };
}

interface Draft {
  index: number;
  faulty: ReadonlySet<ImportField>;
  /** Without the faulty fields. */
  draft: AccountDraft;
}

/** A step has as many accounts as could be written in `stepMs` by the time of the one before. */
async function* stepsOf(drafts: readonly Draft[]): AsyncGenerator<readonly Draft[]> {
  const { first, min, max } = stepAccounts;
  let size = first;
  let tookMs = 0;
  for (let n = 0; n < drafts.length; ) {
    if (n > 0) await setTimeout(pauseMs(tookMs));
    const beganMs = performance.now();
    yield drafts.slice(n, n + size);
    n += size;
    tookMs = performance.now() - beganMs;
    size = Math.round(Math.min(max, 2 * size, Math.max(min, (size * stepMs) / tookMs)));
  }
}

function soundPart(
  { id, plan, contact, balances }: ImportedAccount,
  faulty: ReadonlySet<ImportField>,
  timezone: string,
): AccountDraft {
  const kept = <T>(field: ImportField, value: T) => (faulty.has(field) ? undefined : value);
  const windowOf = (bucket: WindowBucket): OpeningWindow | undefined => {
    const left = kept(`${bucket}_left`, balances[`${bucket}_left`]);
    const start = kept(`${bucket}_start`, balances[`${bucket}_start`]);
    const fromMs = start === undefined ? null : localMomentOf(start, timezone);
    return left === undefined || fromMs === null ? undefined : { fromMs, leftMicro: microOf(Number(left)) };
  };
  const additional = kept("additional", balances.additional);
  const payment = kept("payment", balances.payment) ?? null;
  const brought: OpeningBalances = defined({
    base: windowOf("base"),
    overage: windowOf("overage"),
    additional: additional === undefined ? undefined : { amountMicro: microOf(Number(additional)), payment },
  });
  return {
    ...{ id, plan: kept("plan", plan) ?? null, key: null },
    ...(Object.keys(brought).length === 0 ? {} : { balances: brought }),
    contact: defined({
      owner: kept("owner", contact.owner),
      email: kept("email", contact.email),
      note: kept("note", contact.note),
      externalId: kept("external_id", contact.externalId),
    }),
  };
}

/** Returns the values that no account can have, and those that lack another. */
function faultsOf({ id, plan, contact, balances }: ImportedAccount, index: number): ImportProblem[] {
  const { externalId, ...texts } = contact;
  const values = { ...texts, ...balances, id, plan, external_id: externalId };
  const faults = importFields.flatMap((field) => {
    const value = values[field];
    const problem = value === null || value === undefined ? null : rules[field](value);
    const message = `${JSON.stringify(shortened(value ?? ""))} ${problem}.`;
    return problem === null ? [] : [{ index, field, message }];
  });
  const lacking = (field: BalanceField, other: BalanceField, what: string) =>
    balances[field] === undefined && balances[other] !== undefined
      ? [{ index, field, message: `${other} needs ${field}: ${what}.` }]
      : [];
  return [
    ...faults,
    ...windowBuckets.flatMap((bucket) => [
      ...lacking(`${bucket}_start`, `${bucket}_left`, "the time at which the present window began"),
      ...lacking(`${bucket}_left`, `${bucket}_start`, "the credits that are left in that window"),
    ]),
    ...lacking("additional", "payment", "the credits that are left of the payment"),
  ];
}

/** Finds accounts, external ids and payments that occur twice. */
function doublesIn(accounts: readonly ImportedAccount[]): ImportProblem[] {
  const check = (
    field: "id" | "external_id" | "payment",
    what: string,
    read: (each: ImportedAccount) => string | null | undefined,
  ) => {
    const seen = new Set<string>();
    return accounts.flatMap((each, index): ImportProblem[] => {
      const value = read(each);
      if (value === null || value === undefined || rules[field](value) !== null) return [];
      if (seen.has(value)) return [{ index, field, message: `The ${what} "${value}" occurs twice.` }];
      seen.add(value);
      return [];
    });
  };
  return [
    ...check("id", "account", ({ id }) => id),
    ...check("external_id", "external id", ({ contact }) => contact.externalId),
    ...check("payment", "payment", ({ balances }) => balances.payment),
  ];
}

/** A missing quote can make one cell of a whole file. */
export function shortened(text: string): string {
  const characters = 80;
  return text.length > characters ? `${text.slice(0, characters).toWellFormed()}…` : text;
}

/** Returns why the database refuses an account, apart from its faulty fields. */
function problemsOf({ index, faulty, draft }: Draft, outcome: DraftOutcome | undefined): ImportProblem[] {
  const { id, plan, contact } = draft;
  const at = (field: ImportField, message: string): ImportProblem[] =>
    faulty.has(field) ? [] : [{ index, field, message }];
  switch (outcome?.kind) {
    case "no_account":
      return at("plan", `There is no account ${id} yet. Name the plan to open it on.`);
    case "unknown_plan":
      return at("plan", unknownName("plan", plan ?? "", outcome.plans));
    case "retired_plan":
      return at("plan", `The plan "${plan}" is retired. Choose another plan.`);
    case "external_id_used":
      return at(
        "external_id",
        `The external id "${contact.externalId}" belongs to account ${outcome.account}.`,
      );
    case "balances_refused":
      return outcome.faults.flatMap((fault) => at(...problemOf(fault, draft)));
    default:
      return [];
  }
}

function problemOf(fault: BalanceFault, { plan, balances }: AccountDraft): [ImportField, string] {
  switch (fault.kind) {
    case "window_not_begun": {
      const now = `it is ${isoTime(fault.atMs)}`;
      return [`${fault.bucket}_start`, `The window has not begun: ${now}. Name the present window.`];
    }
    case "window_ended": {
      const { bucket, untilMs, presentMs } = fault;
      const message = `The window that begins then ended at ${isoTime(untilMs)}. The present one began at ${isoTime(presentMs)}.`;
      return [`${bucket}_start`, message];
    }
    case "too_much_left": {
      const { bucket, amount } = fault;
      return [`${bucket}_left`, `The plan ${plan} has only ${exactCredits(amount)} ${bucket} credits.`];
    }
    case "id_used": {
      const { payment } = balances?.additional ?? {};
      return ["payment", `Payment "${payment}" was credited to account ${fault.account} before.`];
    }
  }
}

function lineOf({ id, plan, balances }: AccountDraft, outcome: DraftOutcome | undefined): ImportLine {
  if (outcome?.kind !== "exists")
    return { id, result: "opened", plan: plan ?? "", planDiffers: false, balancesIgnored: false };
  const result = outcome.changed ? "updated" : "unchanged";
  const planDiffers = plan !== null && plan !== outcome.plan;
  return { id, result, plan: outcome.plan, planDiffers, balancesIgnored: balances !== undefined };
}
