/**
 * Imports a list of accounts: opens the accounts that are missing, and sets the contacts of the
 * others.
 *
 * Guarantees that the list takes effect completely or not at all, and that a repetition changes
 * nothing. Every problem of the list is reported, with its place.
 */
import { unknownName } from "../spelling.ts";
import type { AccountDraft, DraftOutcome } from "../store/contacts.ts";
import type { Store } from "../store/store.ts";

/** Accounts in one import. With keys and contacts, this many take 0.4 s on SQLite. */
export const importedAccountsMax = 10_000;

export interface ImportProblem {
  /** Index in the list. */
  index: number;
  /** Field of the operator API. */
  field: "id" | "plan" | "external_id";
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
  dryRun: boolean,
): Promise<ImportResult> {
  const doubled = doublesIn(accounts);
  if (doubled.length > 0) return { kind: "refused", problems: doubled };
  const outcomes = await store.putAccounts(accounts, { dryRun, updatesExisting: true });
  const problems = outcomes.flatMap((outcome, index) => problemOf(accounts[index], outcome, index));
  if (problems.length > 0) return { kind: "refused", problems };
  const lines = accounts.map((account, index) => lineOf(account, outcomes[index]));
  return { kind: "done", dryRun, lines };
}

/** Finds accounts and external ids that occur twice. */
function doublesIn(accounts: readonly AccountDraft[]): ImportProblem[] {
  const problems: ImportProblem[] = [];
  const check = (field: "id" | "external_id", what: string, read: (each: AccountDraft) => unknown) => {
    const seen = new Set<unknown>();
    for (const [index, each] of accounts.entries()) {
      const value = read(each);
      if (value == null) continue;
      if (seen.has(value)) problems.push({ index, field, message: `The ${what} "${value}" occurs twice.` });
      seen.add(value);
    }
  };
  check("id", "account", ({ id }) => id);
  check("external_id", "external id", ({ contact }) => contact.externalId);
  return problems.sort((a, b) => a.index - b.index);
}

function problemOf(account: AccountDraft | undefined, outcome: DraftOutcome, index: number): ImportProblem[] {
  const { id = "", plan, contact } = account ?? {};
  switch (outcome.kind) {
    case "no_account":
      return [
        { index, field: "plan", message: `There is no account ${id} yet. Name the plan to open it on.` },
      ];
    case "unknown_plan":
      return [{ index, field: "plan", message: unknownName("plan", plan ?? "", outcome.plans) }];
    case "retired_plan":
      return [{ index, field: "plan", message: `The plan "${plan}" is retired. Choose another plan.` }];
    case "external_id_used": {
      const message = `The external id "${contact?.externalId}" belongs to account ${outcome.account}.`;
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
