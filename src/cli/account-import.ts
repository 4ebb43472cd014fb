/**
 * `inkwell account import`: opens the accounts of a CSV file and sets their contacts, all of them
 * or none. With `--keys`, each new account gets a key. The keys are in the file before the
 * accounts are in the ledger, so that none is lost.
 */
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import type { ImportLine } from "../accounts/account-import.ts";
import { type MintedKey, newKey } from "../accounts/keys.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { importObject } from "../accounts/operator-objects.ts";
import { codeOf, invariant, messageOf, OperatorError, StoreUnavailableError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import type { AccountDraft } from "../store/contacts.ts";
import { grouped } from "../units.ts";
import { type AccountsFile, readAccounts, refuseFaults } from "./account-csv.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";
import { examples } from "./help.ts";

interface ImportOptions {
  dryRun?: boolean;
  keys?: string;
}

export function importCommand(cli: Cli, account: Command): void {
  account
    .command("import")
    .description("open the accounts of a CSV file and set their contacts, all of them or none")
    .argument("<file>", "columns: account, plan (for new accounts); optional owner, email, note, external_id")
    .option("--dry-run", "check the file and show what would happen, and change nothing")
    .option("--keys <file>", "issue a key for each new account, and write the keys to this new CSV file")
    .addHelpText(
      "after",
      examples(
        inkwell("account import accounts.csv --dry-run"),
        inkwell("account import accounts.csv --keys keys.csv"),
      ),
    )
    .action((path: string, options: ImportOptions) => importFile(cli, path, options));
}

async function importFile(
  cli: Cli,
  path: string,
  { dryRun = false, keys: keysPath }: ImportOptions,
): Promise<void> {
  const config = cli.config();
  const file = readAccounts(resolve(cli.host.cwd, path));
  await cli.withActions(config, async (actions) => {
    if (dryRun || keysPath === undefined) {
      report(cli, await run(actions, file, dryRun), dryRun);
      return;
    }
    const keys = keysFor(await run(actions, file, true));
    const importing = () => run(actions, withKeys(file, keys), false);
    if (keys.length === 0) {
      report(cli, await importing(), dryRun);
      cli.remark("No account is new, so there are no keys.");
      return;
    }
    report(cli, await withKeysFile(resolve(cli.host.cwd, keysPath), keys, importing), dryRun);
    cli.remark(
      `The keys of the new accounts are in ${keysPath}, and are shown nowhere else. Keep that file safe.`,
    );
  });
}

/** Throws an OperatorError that names all lines at fault. */
async function run(actions: OperatorActions, file: AccountsFile, dryRun: boolean): Promise<ImportLine[]> {
  // A file with faults is tried, too: the database finds the other ones.
  const result = await actions.importAccounts(file.drafts, dryRun || file.faults.length > 0);
  refuseFaults(file, result.kind === "refused" ? result.problems : []);
  invariant(result.kind === "done", "a refused import has problems");
  return result.lines;
}

function keysFor(lines: readonly ImportLine[]): MintedKey[] {
  return lines.filter(({ result }) => result === "opened").map(({ id }) => newKey(id, { name: "first" }));
}

function withKeys(file: AccountsFile, keys: readonly MintedKey[]): AccountsFile {
  const byAccount = new Map(keys.map(({ row }) => [row.account, row]));
  const withKey = (draft: AccountDraft) => ({ ...draft, key: byAccount.get(draft.id) ?? null });
  return { ...file, drafts: file.drafts.map(withKey) };
}

/** Writes the keys, imports, and keeps only the keys of accounts that were opened. */
async function withKeysFile(
  path: string,
  keys: readonly MintedKey[],
  importing: () => Promise<ImportLine[]>,
): Promise<ImportLine[]> {
  try {
    writeFileSync(path, keysCsv(keys), { flag: "wx", mode: 0o600, flush: true });
  } catch (error) {
    if (codeOf(error) === "EEXIST") {
      throw new OperatorError(`${path} already exists. Nothing was imported. Name a new file.`, error);
    }
    throw new OperatorError(`${path} cannot be written: ${messageOf(error)}. Nothing was imported.`, error);
  }
  try {
    const lines = await importing();
    const opened = new Set(lines.filter(({ result }) => result === "opened").map(({ id }) => id));
    // Another process may have opened some of the accounts in between.
    if (opened.size < keys.length) {
      writeFileSync(path, keysCsv(keys.filter(({ row }) => opened.has(row.account))));
    }
    return lines;
  } catch (error) {
    // The accounts may be open all the same, with these keys.
    const isUnknown = error instanceof StoreUnavailableError && error.mayBeDone;
    if (!isUnknown) rmSync(path);
    throw error;
  }
}

/** Account names and keys need no quotes. */
function keysCsv(keys: readonly MintedKey[]): string {
  return ["account,key_id,key", ...keys.map(({ key, row }) => `${row.account},${row.id},${key}`), ""].join(
    "\r\n",
  );
}

function report(cli: Cli, lines: ImportLine[], dryRun: boolean): void {
  cli.print(importObject.of({ kind: "done", dryRun, lines }), "");
  for (const { id, plan, planDiffers } of lines) {
    if (planDiffers) cli.remark(`Account ${id} stays on plan ${plan}. The file has another plan.`);
  }
  const sum = (wanted: ImportLine["result"]) => lines.filter(({ result }) => result === wanted).length;
  const done = dryRun ? "Nothing has changed. An import would do this: " : "";
  cli.remark(
    `${done}${count(sum("opened"), "account")} opened, ${grouped(sum("updated"))} updated, ${grouped(sum("unchanged"))} unchanged.`,
  );
}
