/**
 * `inkwell account import`: opens the accounts of a CSV file, row by row. With `--keys`, each
 * account gets a key, and with `--invite` its person gets a link to the portal.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { importRowsIn } from "../actions/account-csv.ts";
import {
  type ActionResults,
  type ImportedRow,
  type ImportRow,
  importAccounts,
  type RunAction,
} from "../actions/account-import.ts";
import { inviteAccount, openAccount, setContact } from "../actions/accounts.ts";
import { ApiError } from "../actions/api-error.ts";
import { makeKey, rotateKey } from "../actions/keys.ts";
import { importAccountList, tally } from "../actions/many.ts";
import { listPeople, lookUpKey, showAccount } from "../actions/views.ts";
import { messageOf, OperatorError } from "../errors.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";
import { SecretListFile } from "./secret-list-file.ts";

export interface CommandOptions {
  dryRun?: boolean;
  update?: boolean;
  keys?: string;
  /** True: by mail. */
  invite?: string | true;
}

export async function importFile(cli: Cli, path: string, options: CommandOptions): Promise<void> {
  const { dryRun = false, update: updates = false, keys: keysPath, invite } = options;
  const rows = readRows(resolve(cli.host.cwd, path));
  const run: RunAction = (id, json) => cli.api.run(actions[id], { ...json });
  // A dry run of any row refuses links that cannot be made or mailed.
  const invited = { csv: "account\nany", invite: invite === true ? "mail" : "link", dry_run: true } as const;
  if (invite !== undefined) await cli.api.run(importAccountList, invited);
  await using files = new AsyncDisposableStack();
  const open = async (file: string, kind: "keys" | "links") =>
    files.use(await SecretListFile.open(resolve(cli.host.cwd, file), kind, dryRun));
  const keys = keysPath === undefined ? null : await open(keysPath, "keys");
  const links = typeof invite === "string" ? await open(invite, "links") : invite === true ? "mail" : null;
  if (keys !== null && keys.first !== null) await requireOwn(keys.first, cli, keysPath ?? "");
  const done: ImportedRow[] = [];
  try {
    const importing = importAccounts(rows, run, { dryRun, updates, keys, links });
    await cli.spinner.during(
      () => `${grouped(done.length)} of ${count(rows.length, "row")}`,
      async () => {
        for await (const row of importing) {
          done.push(row);
          remarkRow(cli, row, dryRun);
        }
      },
    );
  } catch (error) {
    cli.remark(`${grouped(done.length)} of ${count(rows.length, "row")} are done. The same command goes on.`);
    throw error;
  }
  report(cli, done, options);
}

function readRows(path: string): ImportRow[] {
  let text: string;
  try {
    // The decoder marks bytes that are not UTF-8, and importRowsIn refuses the marks.
    text = new TextDecoder().decode(readFileSync(path));
  } catch (error) {
    throw new OperatorError(`${path} cannot be read: ${messageOf(error)}.`, error);
  }
  return importRowsIn(text, path);
}

/** Refuses keys of another ledger: ids of keys are the same there. */
async function requireOwn(key: string, { api }: Cli, file: string): Promise<void> {
  try {
    await api.get(lookUpKey, { key });
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "key_not_found") throw error;
    throw new OperatorError(
      `The first key of ${file} is not in this ledger. Nothing was imported. Name a new file.`,
      error,
    );
  }
}

const actions = {
  showAccount,
  openAccount,
  setContact,
  makeKey,
  rotateKey,
  inviteAccount,
  listPeople,
} satisfies Record<keyof ActionResults, unknown>;

function remarkRow(cli: Cli, row: ImportedRow, dryRun: boolean): void {
  const { line, account, result, changes, differences, key, fault } = row;
  // A dry run lists all changes together.
  const replaced = result === "updated" && !dryRun ? changes : [];
  for (const text of [...replaced, ...differences]) cli.remark(`line ${line}: ${account}: ${text}`);
  if (key === "kept")
    cli.remark(`line ${line}: ${account}: its first key is in use or was changed, and is not in the file`);
  if (fault === null) return;
  cli.exitCode = 1;
  cli.remark(`line ${line}${fault.column === null ? "" : `, column ${fault.column}`}: ${fault.message}`);
}

function report(cli: Cli, done: readonly ImportedRow[], { dryRun, keys, invite }: CommandOptions): void {
  const changed = done.filter(({ changes }) => changes.length > 0);
  const listed = changed.map(
    ({ line, account, changes }) => `line ${line}: ${account}: ${changes.join(", ")}`,
  );
  cli.print({ dry_run: dryRun === true, accounts: done }, dryRun ? listed.join("\n") : "");
  if (dryRun) cli.remark("Nothing has changed. An import would do this:");
  cli.remark(`Accounts: ${tally(done.map(({ result }) => result))}.`);
  if (keys !== undefined) {
    const secret = dryRun ? "" : " They are shown nowhere else: keep the file safe.";
    cli.remark(`Keys in ${keys}: ${tally(done.map(({ key }) => key))}.${secret}`);
  }
  if (invite !== undefined)
    cli.remark(
      `Links ${invite === true ? "by mail" : `in ${invite}`}: ${tally(done.map(({ link }) => link))}.`,
    );
}
