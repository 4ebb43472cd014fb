/**
 * `inkwell account import`: opens the accounts of a CSV file, row by row. With `--keys`, each
 * account gets a key, and with `--invite` its person gets a link to the portal.
 */
import { resolve } from "node:path";
import type { Command } from "commander";
import { closed } from "../accounts/json-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { OperatorRefusal } from "../accounts/refusals.ts";
import {
  ActionRefused,
  type ActionResults,
  type ImportedRow,
  importAccounts,
  type RunAction,
} from "../actions/account-import.ts";
import { accountActions } from "../actions/account-runs.ts";
import type { BoundAction } from "../actions/bind.ts";
import { propertiesOf } from "../actions/input.ts";
import { keyActions } from "../actions/key-runs.ts";
import { peopleActions } from "../actions/people-runs.ts";
import { OperatorError, Refusal } from "../errors.ts";
import { explain } from "../http/openai-format/explain.ts";
import { inkwell } from "../invocation.ts";
import { grouped } from "../units.ts";
import { readRows } from "./account-csv.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";
import { examples } from "./help.ts";
import { SecretListFile } from "./secret-list-file.ts";

/** Results of accounts that an import has found. */
const existed: readonly ImportedRow["result"][] = ["updated", "unchanged"];

interface CommandOptions {
  dryRun?: boolean;
  update?: boolean;
  keys?: string;
  /** True: by mail. */
  invite?: string | true;
}

export function importCommand(cli: Cli, account: Command): void {
  account
    .command("import")
    .description("open the accounts of a CSV file, row by row; a repetition goes on with it")
    .argument(
      "<file>",
      "columns: account, plan (for new accounts); optional owner, email, note, external_id, and of new accounts additional, payment",
    )
    .option("--dry-run", "list what would happen to each account, and change nothing")
    .option("--update", "set the contacts of accounts that exist, too")
    .option(
      "--keys <file>",
      "give each account a key, and write the keys to this CSV file; it is new, or that of an earlier import",
    )
    .option(
      "--invite [file]",
      "invite the people of the accounts who have not used a link yet: write the links to this CSV file, or mail them",
    )
    .addHelpText(
      "after",
      examples(
        inkwell("account import accounts.csv --dry-run"),
        inkwell("account import accounts.csv --keys keys.csv"),
        inkwell("account import accounts.csv --invite links.csv"),
      ),
    )
    .action((path: string, options: CommandOptions) => importFile(cli, path, options));
}

async function importFile(cli: Cli, path: string, options: CommandOptions): Promise<void> {
  const { dryRun = false, update: updates = false, keys: keysPath, invite } = options;
  const config = cli.config();
  const rows = readRows(resolve(cli.host.cwd, path));
  await cli.withActions(config, async (actions) => {
    const run = runOn(actions);
    await using files = new AsyncDisposableStack();
    const open = async (file: string, kind: "keys" | "links") =>
      files.use(await SecretListFile.open(resolve(cli.host.cwd, file), kind, dryRun));
    const keys = keysPath === undefined ? null : await open(keysPath, "keys");
    const links = typeof invite === "string" ? await open(invite, "links") : invite === true ? "mail" : null;
    if (keys !== null && keys.first !== null) await requireOwn(keys.first, run, keysPath ?? "");
    const done: ImportedRow[] = [];
    try {
      for await (const row of importAccounts(rows, run, { dryRun, updates, keys, links })) {
        done.push(row);
        remarkRow(cli, row);
      }
    } catch (error) {
      cli.remark(
        `${grouped(done.length)} of ${count(rows.length, "row")} are done. The same command goes on.`,
      );
      throw error instanceof ActionRefused ? new OperatorError(error.message, error) : error;
    }
    report(cli, done, options);
    const late = done.filter(
      ({ result }, n) => existed.includes(result) && rows[n]?.additional !== undefined,
    );
    if (late.length > 0)
      cli.remark(`${count(late.length, "account")} existed before: the file adds no credits there.`);
  });
}

/** Refuses keys of another ledger: ids of keys are the same there. */
async function requireOwn(key: string, run: RunAction, file: string): Promise<void> {
  try {
    await run("lookUpKey", { key });
  } catch (error) {
    if (!(error instanceof ActionRefused) || error.code !== "key_not_found") throw error;
    throw new OperatorError(
      `The first key of ${file} is not in this ledger. Nothing was imported. Name a new file.`,
      error,
    );
  }
}

/** Runs actions on the opened store, and checks their input as the API does. */
function runOn(actions: OperatorActions): RunAction {
  const bound: { [Id in keyof ActionResults]: BoundAction<OperatorActions, ActionResults[Id]> } = {
    ...accountActions,
    ...keyActions,
    ...peopleActions,
  };
  const schemas = new Map(
    Object.entries(bound).map(([id, { action }]) => [id, closed(propertiesOf(action.input))]),
  );
  return async (id, json) => {
    try {
      const fault = explain(schemas.get(id) ?? closed({}), json, "");
      if (fault !== null) throw fault;
      return await bound[id].run(actions, json);
    } catch (error) {
      if (!(error instanceof OperatorRefusal || error instanceof Refusal)) throw error;
      throw new ActionRefused(error.code, error.param ?? null, error.message, { cause: error });
    }
  };
}

function remarkRow(cli: Cli, { line, account, differences, key, fault }: ImportedRow): void {
  for (const text of differences) cli.remark(`line ${line}: ${account}: ${text}`);
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

/** `2 made, 1 listed` */
function tally(values: readonly (string | null)[]): string {
  const groups = Map.groupBy(values, (value) => value);
  groups.delete(null);
  const parts = [...groups].map(([value, all]) => `${grouped(all.length)} ${value?.replace("_", " ")}`);
  return parts.length === 0 ? "none" : parts.join(", ");
}
