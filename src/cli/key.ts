/**
 * `inkwell key`: issues, lists and revokes API keys. A key is shown once; only its hash is stored.
 */
import { Command } from "commander";
import type { KeyOptions } from "../accounts/keys.ts";
import { keyObject, newKeyObject } from "../accounts/operator-objects.ts";
import type { KeyRow } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";
import { label, limit, modelIds, moment } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { shortTime, table } from "./format.ts";
import { examples } from "./help.ts";

interface CreateOptions extends Pick<KeyOptions, "name" | "models" | "concurrent"> {
  expires?: EpochMs;
  rpm?: number;
  tpm?: number;
}

export function keyCommand(cli: Cli): Command {
  const key = new Command("key").description("issue, list and revoke API keys");

  key
    .command("create")
    .description("issue a key; prints it once, alone on stdout")
    .argument("<account>", "as account list shows it")
    .option("--name <name>", "a label, to recognise the key in lists", label)
    .option(
      "--models <ids>",
      "models that the key may use, comma-separated (default: all of the plan)",
      modelIds,
    )
    .option("--expires <time>", "expiry, ISO 8601: 2027-01-31, or 2027-01-31T18:00:00Z", moment)
    .option("--rpm <number>", "requests per minute, in addition to the plan's limit", limit)
    .option("--tpm <number>", "tokens per minute, in addition to the plan's limit", limit)
    .option("--concurrent <number>", "requests at a time, in addition to the plan's limit", limit)
    .addHelpText(
      "after",
      examples(
        "inkwell key create ada --name laptop",
        "inkwell key create ada --name trial --expires 2027-01-31 --rpm 20 --models smollm2-135m-instruct",
        "KEY=$(inkwell key create ada)",
      ),
    )
    .action((account: string, { expires, rpm, tpm, ...options }: CreateOptions) =>
      create(cli, account, { ...options, expiresMs: expires, requestsPerMinute: rpm, tokensPerMinute: tpm }),
    );

  key
    .command("list")
    .description("list the keys of one account, or of all, without their secrets")
    .argument("[account]", "as account list shows it")
    .option("--all", "include revoked and expired keys")
    .action((account: string | undefined, { all = false }: { all?: boolean }) => list(cli, account, all));

  key
    .command("revoke")
    .description("revoke a key, at once and for good")
    .argument("<id>", "as key list shows it")
    .action((id: string) => revoke(cli, id));

  return key;
}

async function create(cli: Cli, account: string, options: KeyOptions): Promise<void> {
  const config = cli.config();
  await cli.withActions(config, async (actions) => {
    const { key, row } = await actions.issueKey(account, options);
    cli.print(newKeyObject.of({ key, ...row }), key);
    cli.remark(
      `The key of ${account} is shown only now. Keep it safe. To revoke it: inkwell key revoke ${row.id}`,
    );
  });
}

async function list(cli: Cli, account: string | undefined, all: boolean): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { trustedMs: nowMs } = await actions.clock();
    const keys = await actions.keys(account);
    const shown = all ? keys : keys.filter((row) => stateOf(row, nowMs) === "active");
    cli.print(shown.map(keyObject.of), keyTable(shown, nowMs));
    const hidden = keys.length - shown.length;
    const command = ["inkwell key list", ...(account === undefined ? [] : [account]), "--all"].join(" ");
    if (hidden > 0) cli.remark(`${hidden} more, revoked or expired: ${command}`);
    if (keys.length === 0)
      cli.remark(`There are no keys yet. To issue one: inkwell key create ${account ?? "ACCOUNT"}`);
  });
}

async function revoke(cli: Cli, id: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { row, revokedBefore } = await actions.revokeKey(id);
    cli.print(keyObject.of(row), "");
    cli.remark(
      revokedBefore
        ? `Key ${id} was revoked before, at ${shortTime(row.revokedMs)}.`
        : `Key ${id} of ${row.account} is revoked. Requests with it are refused from now on.`,
    );
  });
}

export function keyTable(rows: readonly KeyRow[], nowMs: EpochMs): string {
  return table(rows, [
    { head: "ID", cell: (row) => row.id },
    { head: "ACCOUNT", cell: (row) => row.account },
    { head: "KEY", cell: (row) => `ink_...${row.lastFour}` },
    { head: "NAME", cell: (row) => row.name ?? "-" },
    { head: "STATE", cell: (row) => stateOf(row, nowMs) },
    { head: "MODELS", cell: (row) => row.models.join(",") },
    { head: "LIMITS", cell: limitsOf },
    { head: "LAST USED", cell: (row) => shortTime(row.lastUsedMs) },
    { head: "EXPIRES", cell: (row) => shortTime(row.expiresMs) },
  ]);
}

function stateOf(row: KeyRow, nowMs: EpochMs): "active" | "revoked" | "expired" {
  if (row.revokedMs !== null) return "revoked";
  return row.expiresMs !== null && row.expiresMs <= nowMs ? "expired" : "active";
}

function limitsOf({ requestsPerMinute: rpm, tokensPerMinute: tpm, concurrent }: KeyRow): string {
  const limits = [
    ...(rpm === null ? [] : [`${rpm} rpm`]),
    ...(tpm === null ? [] : [`${tpm} tpm`]),
    ...(concurrent === null ? [] : [`${concurrent} at once`]),
  ];
  return limits.join(", ") || "-";
}
