/** `inkwell key`: the keys by which clients are known. A key is shown once, when it is made; only its hash is kept. */
import { Command } from "commander";
import { issueKey, type KeyOptions } from "../accounts/keys.ts";
import { OperatorError } from "../errors.ts";
import { keyObject } from "../http/admin/objects.ts";
import type { KeyRow } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";
import { label, limit, modelIds, moment } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { isoTime, shortTime, table } from "./format.ts";
import { examples } from "./help.ts";
import { noAccount, requireModel } from "./refusals.ts";

interface CommandOptions extends Pick<KeyOptions, "name" | "models" | "concurrent"> {
  expires?: EpochMs;
  rpm?: number;
  tpm?: number;
}

export function keyCommand(cli: Cli): Command {
  const key = new Command("key").description("the keys by which clients are known");

  key
    .command("create")
    .description("make a key; prints it once, alone on stdout")
    .argument("<account>", "as account list shows it")
    .option("--name <name>", "what you call it, to tell it from others", label)
    .option(
      "--models <ids>",
      "models it may use, with commas between them (default: all of the plan)",
      modelIds,
    )
    .option("--expires <time>", "when it ends, ISO 8601: 2027-01-31, or 2027-01-31T18:00:00Z", moment)
    .option("--rpm <number>", "requests per minute, beside the plan's own limit", limit)
    .option("--tpm <number>", "tokens per minute, beside the plan's own limit", limit)
    .option("--concurrent <number>", "requests at a time, beside the plan's own limit", limit)
    .addHelpText(
      "after",
      examples(
        "inkwell key create ada --name laptop",
        "inkwell key create ada --name trial --expires 2027-01-31 --rpm 20 --models smollm2-135m-instruct",
        "KEY=$(inkwell key create ada)",
      ),
    )
    .action((account: string, options: CommandOptions) => create(cli, account, keyOptions(options)));

  key
    .command("list")
    .description("the keys of one account, or of all: everything about them but the keys")
    .argument("[account]", "as account list shows it")
    .option("--all", "also those that are revoked or have expired")
    .action((account: string | undefined, options: { all?: boolean }) =>
      list(cli, account, options.all ?? false),
    );

  key
    .command("revoke")
    .description("end a key, at once and for good")
    .argument("<id>", "as key list shows it")
    .action((id: string) => revoke(cli, id));

  return key;
}

function keyOptions({ expires, rpm, tpm, ...options }: CommandOptions): KeyOptions {
  return {
    ...options,
    ...(expires === undefined ? {} : { expiresMs: expires }),
    ...(rpm === undefined ? {} : { requestsPerMinute: rpm }),
    ...(tpm === undefined ? {} : { tokensPerMinute: tpm }),
  };
}

async function create(cli: Cli, account: string, options: KeyOptions): Promise<void> {
  const config = cli.config();
  for (const model of options.models ?? []) if (model !== "*") requireModel(config, model);
  const nowMs = Date.now();
  if (options.expiresMs !== undefined && options.expiresMs <= nowMs) {
    throw new OperatorError(
      `The key would have expired already, at ${isoTime(options.expiresMs)}. Name a time to come with --expires.`,
    );
  }
  await cli.withStore(config, async ({ store }) => {
    const issued = await issueKey(store, account, options, nowMs);
    if (issued === null) throw noAccount(account);
    const { key, row } = issued;
    cli.print({ key, ...keyObject(row) }, key);
    cli.say(
      `This key of ${account} is shown only now; keep it safe. To end it: inkwell key revoke ${row.id}`,
    );
  });
}

async function list(cli: Cli, account: string | undefined, all: boolean): Promise<void> {
  const config = cli.config();
  await cli.withStore(config, async ({ store }) => {
    if (account !== undefined && (await store.snapshot(account)) === null) throw noAccount(account);
    const nowMs = Date.now();
    const found = await store.keys(account);
    const shown = all ? found : found.filter((row) => stateOf(row, nowMs) === "active");
    cli.print(shown.map(keyObject), keyTable(shown, nowMs));
    const hidden = found.length - shown.length;
    if (hidden > 0) {
      const command = ["inkwell key list", ...(account === undefined ? [] : [account]), "--all"].join(" ");
      cli.say(`${hidden} more, revoked or expired: ${command}`);
    }
    if (found.length === 0)
      cli.say(`There are no keys yet. Make one: inkwell key create ${account ?? "ACCOUNT"}`);
  });
}

async function revoke(cli: Cli, id: string): Promise<void> {
  const config = cli.config();
  await cli.withStore(config, async ({ store }) => {
    const atMs = Date.now();
    const row = await store.revokeKey(id, atMs);
    if (row === null) throw new OperatorError(`There is no key ${id}. "inkwell key list" shows the ids.`);
    cli.print(keyObject(row), "");
    const before = row.revokedMs !== null && row.revokedMs < atMs;
    cli.say(
      before
        ? `Key ${id} was revoked before, at ${shortTime(row.revokedMs)}.`
        : `Key ${id} of ${row.account} is revoked; it is refused from now on.`,
    );
  });
}

export function keyTable(rows: readonly KeyRow[], nowMs: EpochMs): string {
  return table(
    [
      { head: "ID" },
      { head: "ACCOUNT" },
      { head: "KEY" },
      { head: "NAME" },
      { head: "STATE" },
      { head: "MODELS" },
      { head: "LIMITS" },
      { head: "LAST USED" },
      { head: "EXPIRES" },
    ],
    rows.map((row) => [
      row.id,
      row.account,
      `ink_...${row.lastFour}`,
      row.name ?? "-",
      stateOf(row, nowMs),
      row.models.join(","),
      limitsOf(row),
      shortTime(row.lastUsedMs),
      shortTime(row.expiresMs),
    ]),
  );
}

function stateOf(row: KeyRow, nowMs: EpochMs): "active" | "revoked" | "expired" {
  if (row.revokedMs !== null) return "revoked";
  return row.expiresMs !== null && row.expiresMs <= nowMs ? "expired" : "active";
}

function limitsOf(row: KeyRow): string {
  const limits = [
    row.requestsPerMinute === null ? [] : `${row.requestsPerMinute} rpm`,
    row.tokensPerMinute === null ? [] : `${row.tokensPerMinute} tpm`,
    row.concurrent === null ? [] : `${row.concurrent} at once`,
  ].flat();
  return limits.length === 0 ? "-" : limits.join(", ");
}
