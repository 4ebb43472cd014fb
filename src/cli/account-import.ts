/**
 * `inkwell account import`: opens the accounts of a CSV file and sets their contacts. With
 * `--keys`, each new account gets a key. The keys are in the file before the accounts are in the
 * ledger, so that none is lost. With `--invite`, people get links to the portal instead.
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { type ImportLine, importedAccountsMax } from "../accounts/account-import.ts";
import type { KeyActions } from "../accounts/key-actions.ts";
import { newKey, parseKey } from "../accounts/keys.ts";
import { importObject } from "../accounts/operator-objects.ts";
import { OperatorRefusal } from "../accounts/refusals.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import type { NewKey } from "../ledger/operations.ts";
import { grouped } from "../units.ts";
import { readAccounts, refuseFaults } from "./account-csv.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";
import { examples } from "./help.ts";
import { ImportInvitations } from "./import-invitations.ts";

interface ImportOptions {
  dryRun?: boolean;
  keys?: string;
  /** True: by mail. */
  invite?: string | true;
}

export function importCommand(cli: Cli, account: Command): void {
  account
    .command("import")
    .description(
      `open the accounts of a CSV file and set their contacts; at most ${grouped(importedAccountsMax)} accounts`,
    )
    .argument(
      "<file>",
      "columns: account, plan (for new accounts); optional owner, email, note, external_id, and of new accounts base_left, base_start, overage_left, overage_start, additional, payment",
    )
    .option("--dry-run", "check the file and show what would happen, and change nothing")
    .option(
      "--keys <file>",
      "issue a key for each new account, and write the keys to this CSV file; it is new, or that of an import that was stopped",
    )
    .option(
      "--invite [file]",
      "invite the people of the accounts who have not used a link yet: write the links to this new CSV file, or mail them",
    )
    .addHelpText(
      "after",
      examples(
        inkwell("account import accounts.csv --dry-run"),
        inkwell("account import accounts.csv --keys keys.csv"),
        inkwell("account import accounts.csv --invite links.csv"),
      ),
    )
    .action((path: string, options: ImportOptions) => importFile(cli, path, options));
}

async function importFile(
  cli: Cli,
  path: string,
  { dryRun = false, keys: keysPath, invite }: ImportOptions,
): Promise<void> {
  const config = cli.config();
  const file = readAccounts(resolve(cli.host.cwd, path));
  await cli.withActions(config, async (actions) => {
    const keys = keysPath === undefined ? null : new KeysFile(resolve(cli.host.cwd, keysPath), actions.keys);
    const invitations =
      invite === undefined
        ? null
        : new ImportInvitations(actions, invite === true ? null : resolve(cli.host.cwd, invite));
    const result = await actions.importAccounts(file.accounts, {
      // A file with faults is tried, too: the database finds the other ones.
      dryRun: dryRun || file.faults.length > 0,
      issueKeys: keys === null ? null : (accounts) => keys.issue(accounts),
    });
    const { lines } = result;
    if (result.kind === "refused" && lines.length === 0) keys?.remove();
    if (result.kind === "failed") {
      const all = count(file.accounts.length, "account");
      cli.remark(
        `${grouped(lines.length)} of ${all} are known to be imported. The same command imports the others.`,
      );
      throw result.error;
    }
    refuseFaults(file, result.kind === "refused" ? result.problems : [], lines.length);
    report(cli, lines, dryRun);
    if (dryRun) return;
    await invitations?.invite(
      cli,
      lines.map(({ id }) => id),
    );
    if (keys === null) return;
    for (const account of keys.unused(lines)) {
      cli.remark(
        `Account ${account} was opened by somebody else meanwhile. Its key in ${keysPath} is not valid.`,
      );
    }
    cli.remark(
      keys.isUsed
        ? `The keys of the new accounts are in ${keysPath}, and are shown nowhere else. Keep that file safe.`
        : "No account is new, so no key was issued.",
    );
  });
}

const keysHead = "account,key_id,key";

/** The CSV file with the keys of new accounts. Account names and keys need no quotes. */
class KeysFile {
  readonly #path: string;
  readonly #keys: KeyActions;
  #issued: ReadonlyMap<string, NewKey> = new Map();
  #isMade = false;

  constructor(path: string, keys: KeyActions) {
    this.#path = path;
    this.#keys = keys;
  }

  get isUsed(): boolean {
    return this.#issued.size > 0;
  }

  /**
   * Returns the keys of these accounts, which are in the file then. Those that an import has
   * written before it was stopped are used, and new ones are added to them.
   */
  async issue(accounts: readonly string[]): Promise<ReadonlyMap<string, NewKey>> {
    if (accounts.length === 0) return this.#issued;
    const before = await this.#written();
    const minted = accounts.flatMap((id) => (before?.has(id) ? [] : [newKey(id, { name: "first" })]));
    const lines = minted.map(({ key, row }) => `${row.account},${row.id},${key}\r\n`);
    const head = before === null ? `${keysHead}\r\n` : "";
    try {
      const flag = before === null ? "wx" : "a";
      writeFileSync(this.#path, [head, ...lines].join(""), { flag, mode: 0o600, flush: true });
    } catch (error) {
      throw new OperatorError(
        `${this.#path} cannot be written: ${messageOf(error)}. Nothing was imported.`,
        error,
      );
    }
    this.#isMade = before === null;
    const rows = new Map(minted.map(({ row }) => [row.account, row]));
    this.#issued = new Map(
      accounts.flatMap((id) => rows.get(id) ?? before?.get(id) ?? []).map((row) => [row.account, row]),
    );
    return this.#issued;
  }

  /**
   * Returns the keys of the file by account, if an import into this ledger has written it. Null:
   * there is no such file.
   */
  async #written(): Promise<Map<string, NewKey> | null> {
    const text = this.#read();
    if (text === null) return null;
    const [head, ...lines] = text.split("\r\n");
    const rows = lines.slice(0, -1).flatMap((line) => {
      const [account = "", id, key = "", ...more] = line.split(",");
      return parseKey(key) === "ok" && more.length === 0
        ? [newKey(account, { id, secret: key, name: "first" }).row]
        : [];
    });
    const isWhole = head === keysHead && lines.at(-1) === "" && rows.length === lines.length - 1;
    // The first step writes the first key. A file of another ledger has other keys.
    if (isWhole && rows[0] !== undefined && (await this.#isInLedger(rows[0]))) {
      return new Map(rows.map((row) => [row.account, row]));
    }
    throw new OperatorError(
      `${this.#path} already exists, and is not the keys file of an import into this ledger that was stopped. Nothing was imported. Name a new file.`,
    );
  }

  #read(): string | null {
    try {
      return readFileSync(this.#path, "utf8");
    } catch (error) {
      if (codeOf(error) === "ENOENT") return null;
      throw new OperatorError(
        `${this.#path} cannot be read: ${messageOf(error)}. Nothing was imported.`,
        error,
      );
    }
  }

  async #isInLedger({ id }: NewKey): Promise<boolean> {
    try {
      await this.#keys.find(id);
      return true;
    } catch (error) {
      if (error instanceof OperatorRefusal && error.code === "key_not_found") return false;
      throw error;
    }
  }

  /** Returns the accounts that this import did not open, although it had keys for them. */
  unused(lines: readonly ImportLine[]): string[] {
    return lines.flatMap(({ id, result }) => (result !== "opened" && this.#issued.has(id) ? [id] : []));
  }

  /** Removes the file if this import has made it. No account has a key of it. */
  remove(): void {
    if (this.#isMade) rmSync(this.#path);
  }
}

function report(cli: Cli, lines: ImportLine[], dryRun: boolean): void {
  cli.print(importObject.of({ kind: "done", dryRun, lines }), "");
  for (const { id, plan, planDiffers } of lines) {
    if (planDiffers) cli.remark(`Account ${id} stays on plan ${plan}. The file has another plan.`);
  }
  const ignored = lines.filter(({ balancesIgnored }) => balancesIgnored).length;
  if (ignored > 0) {
    cli.remark(`${count(ignored, "account")} existed before. The balances of the file change nothing there.`);
  }
  const sum = (wanted: ImportLine["result"]) => lines.filter(({ result }) => result === wanted).length;
  const done = dryRun ? "Nothing has changed. An import would do this: " : "";
  cli.remark(
    `${done}${count(sum("opened"), "account")} opened, ${grouped(sum("updated"))} updated, ${grouped(sum("unchanged"))} unchanged.`,
  );
}
