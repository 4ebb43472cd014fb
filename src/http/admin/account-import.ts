/**
 * The import of accounts in the service, for pages: the loop of `account import` over some rows of
 * a CSV file. Its actions run for whoever sends the request, with their rules and roles.
 */
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import { importRowsIn } from "../../actions/account-csv.ts";
import {
  type ActionResults,
  type ImportedRow,
  type ImportRow,
  importAccounts,
  type RunAction,
} from "../../actions/account-import.ts";
import { accountActions } from "../../actions/account-runs.ts";
import { ApiError } from "../../actions/api-error.ts";
import type { BoundAction } from "../../actions/bind.ts";
import { keyActions } from "../../actions/key-runs.ts";
import { peopleActions } from "../../actions/people-runs.ts";
import { OperatorError } from "../../errors.ts";
import { apiErrorOf, type RowResult, runChecked } from "./account-rows.ts";

type Bound = { [Id in keyof ActionResults]: BoundAction<OperatorActions, ActionResults[Id]> };
const { showAccount, openAccount, setContact, inviteAccount } = accountActions;
const { makeKey, rotateKey } = keyActions;
const { listPeople } = peopleActions;
const bound: Bound = { showAccount, openAccount, setContact, inviteAccount, makeKey, rotateKey, listPeople };

interface ImportOptions {
  dryRun: boolean;
  /** Sets the contacts of accounts that exist. */
  updates: boolean;
  invite: "none" | "link" | "mail";
}

/** Throws an error that concerns no row. The same rows can be imported again then. */
export async function importRows(
  operator: OperatorActions,
  rows: readonly ImportRow[],
  { dryRun, updates, invite }: ImportOptions,
): Promise<RowResult[]> {
  const made: { email: string; url: string }[] = [];
  const file = {
    has: () => false,
    async add(_account = "", email = "", url = "") {
      made.push({ email, url });
    },
  };
  const links = invite === "none" ? null : invite === "mail" ? invite : file;
  const results: RowResult[] = [];
  try {
    const imported = importAccounts(rows, runFor(operator), { dryRun, updates, keys: null, links });
    for await (const row of imported) {
      const credits = row.result === "opened" ? Number(rows[results.length]?.additional ?? 0) : 0;
      const { line, account, result } = row;
      results.push({ line, account, result, text: textOf(row), credits, made: made.pop() });
    }
    return results;
  } catch (error) {
    throw error instanceof ApiError ? error.cause : error;
  }
}

export function importRowsOf(csv: string): ImportRow[] {
  try {
    return importRowsIn(csv, "csv");
  } catch (error) {
    if (error instanceof OperatorError) throw invalidValue("csv", error.message);
    throw error;
  }
}

const linkTexts = {
  due: "a link",
  made: "a new link",
  used: "no link: the person has come",
  no_address: "no link: there is no e-mail address",
  listed: null,
} as const;

/** Says what changes, what the account has otherwise and keeps, and what was refused. */
function textOf({ changes, differences, link, fault }: ImportedRow): string {
  const invitation = link === null ? null : linkTexts[link];
  const parts = [...changes, ...differences, invitation, fault?.message ?? null];
  return parts.filter((part) => part !== null).join("; ");
}

/** Runs actions as their routes do. */
function runFor(operator: OperatorActions): RunAction {
  return async (id, json) => {
    try {
      return await runChecked(bound[id], operator, json);
    } catch (error) {
      throw apiErrorOf(error);
    }
  };
}
