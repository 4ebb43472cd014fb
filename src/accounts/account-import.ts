/**
 * Imports a list of accounts: opens the accounts that are missing, and sets the contacts of the
 * others.
 *
 * Guarantees that the list takes effect completely or not at all, and that a repetition changes
 * nothing. All problems of the list are reported at once, each with its place: those of its values
 * and those that only the database knows.
 */
import { defined } from "../objects.ts";
import { unknownName } from "../spelling.ts";
import type { AccountDraft, DraftOutcome } from "../store/contacts.ts";
import type { Store } from "../store/store.ts";
import * as fields from "./fields.ts";

/** Accounts in one import. With keys and contacts, this many take 0.4 s on SQLite. */
export const importedAccountsMax = 10_000;

/** Problems that an answer shows. */
export const importProblemsShown = 20;

/** Fields of the operator API, and their rules. */
const rules = {
  id: fields.name,
  plan: fields.name,
  owner: fields.contact,
  email: fields.email,
  note: fields.remark,
  external_id: fields.contact,
} as const satisfies Record<string, fields.TextField>;

export type ImportField = keyof typeof rules;

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
}

export type ImportResult =
  | { kind: "done"; dryRun: boolean; lines: ImportLine[] }
  | { kind: "refused"; problems: ImportProblem[] };

export async function importAccounts(
  store: Store,
  accounts: readonly AccountDraft[],
  { by, dryRun }: { by: string; dryRun: boolean },
): Promise<ImportResult> {
  const faults = [...accounts.flatMap(faultsOf), ...doublesIn(accounts)];
  const faultyFields = Map.groupBy(faults, ({ index }) => index);
  const faultyAt = (index: number) => new Set(faultyFields.get(index)?.map(({ field }) => field));
  const sound = accounts.flatMap((account, index) => {
    const faulty = faultyAt(index);
    return faulty.has("id") ? [] : [{ index, faulty, draft: soundPart(account, faulty) }];
  });
  // A list with faults is tried, too: the database finds the other problems.
  const options = { by, dryRun: dryRun || faults.length > 0, updatesExisting: true };
  const drafts = sound.map(({ draft }) => draft);
  const outcomes = await store.putAccounts(drafts, options);
  const refused = sound.flatMap(({ index, faulty, draft }, n) =>
    problemOf(draft, outcomes[n], index).filter(({ field }) => !faulty.has(field)),
  );
  const problems = [...faults, ...refused].toSorted((one, other) => one.index - other.index);
  if (problems.length > 0) return { kind: "refused", problems };
  return { kind: "done", dryRun, lines: drafts.map((draft, n) => lineOf(draft, outcomes[n])) };
}

/** Returns the account without its faulty fields. */
function soundPart({ id, plan, contact, key }: AccountDraft, faulty: ReadonlySet<ImportField>): AccountDraft {
  const kept = <T>(field: ImportField, value: T) => (faulty.has(field) ? undefined : value);
  return {
    ...{ id, plan: kept("plan", plan) ?? null, key },
    contact: defined({
      owner: kept("owner", contact.owner),
      email: kept("email", contact.email),
      note: kept("note", contact.note),
      externalId: kept("external_id", contact.externalId),
    }),
  };
}

/** Returns the values that no account can have. */
function faultsOf({ id, plan, contact }: AccountDraft, index: number): ImportProblem[] {
  const { owner, email, note, externalId } = contact;
  const values = { id, plan, owner, email, note, external_id: externalId };
  return importFields.flatMap((field) => {
    const value = values[field];
    const { pattern, rule } = rules[field];
    if (value === null || value === undefined) return [];
    const problem = field === "external_id" ? fields.idProblem(value) : null;
    if (problem !== null)
      return [{ index, field, message: `${JSON.stringify(shortened(value))} ${problem}.` }];
    if (pattern.test(value)) return [];
    return [{ index, field, message: `${JSON.stringify(shortened(value))} must be ${rule}.` }];
  });
}

const importFields = ["id", "plan", "owner", "email", "note", "external_id"] as const satisfies ImportField[];

/** Finds accounts and external ids that occur twice. */
function doublesIn(accounts: readonly AccountDraft[]): ImportProblem[] {
  const check = (field: "id" | "external_id", what: string, read: (each: AccountDraft) => unknown) => {
    const seen = new Set<string>();
    return accounts.flatMap((each, index): ImportProblem[] => {
      const value = read(each);
      if (typeof value !== "string" || !rules[field].pattern.test(value)) return [];
      if (seen.has(value)) return [{ index, field, message: `The ${what} "${value}" occurs twice.` }];
      seen.add(value);
      return [];
    });
  };
  return [
    ...check("id", "account", ({ id }) => id),
    ...check("external_id", "external id", ({ contact }) => contact.externalId),
  ];
}

/** A missing quote can make one cell of a whole file. */
export function shortened(text: string): string {
  const characters = 80;
  return text.length > characters ? `${text.slice(0, characters).toWellFormed()}…` : text;
}

function problemOf(
  { id, plan, contact }: AccountDraft,
  outcome: DraftOutcome | undefined,
  index: number,
): ImportProblem[] {
  switch (outcome?.kind) {
    case "no_account":
      return [
        { index, field: "plan", message: `There is no account ${id} yet. Name the plan to open it on.` },
      ];
    case "unknown_plan":
      return [{ index, field: "plan", message: unknownName("plan", plan ?? "", outcome.plans) }];
    case "retired_plan":
      return [{ index, field: "plan", message: `The plan "${plan}" is retired. Choose another plan.` }];
    case "external_id_used": {
      const message = `The external id "${contact.externalId}" belongs to account ${outcome.account}.`;
      return [{ index, field: "external_id", message }];
    }
    default:
      return [];
  }
}

function lineOf({ id, plan }: AccountDraft, outcome: DraftOutcome | undefined): ImportLine {
  if (outcome?.kind === "exists") {
    const result = outcome.changed ? "updated" : "unchanged";
    return { id, result, plan: outcome.plan, planDiffers: plan !== null && plan !== outcome.plan };
  }
  return { id, result: "opened", plan: plan ?? "", planDiffers: false };
}
