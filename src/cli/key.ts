/**
 * `inkwell key`: issues, lists, changes, rotates and revokes API keys. A secret is shown once;
 * only its hash is stored.
 */
import { randomUUID } from "node:crypto";
import { Command, InvalidArgumentError, Option } from "commander";
import { defaultOverlap, type KeyChange, noOverlap } from "../accounts/key-actions.ts";
import type { KeyOptions } from "../accounts/keys.ts";
import { keyObject, keyOfSecretObject, newKeyObject } from "../accounts/operator-objects.ts";
import { inkwell } from "../invocation.ts";
import { type PortalRights, portalRights } from "../ledger/rows.ts";
import { type Alignment, alignments } from "../ledger/windows.ts";
import type { EpochMs } from "../units.ts";
import {
  budgetCredits,
  label,
  limit,
  modelIds,
  moment,
  period,
  refillPeriod,
  timezone,
} from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { shortTime } from "./format.ts";
import { examples } from "./help.ts";
import { firstLine } from "./input.ts";
import { keyDetails, keyTable, stateOf } from "./key-text.ts";

interface CreateOptions extends Pick<KeyOptions, "name" | "models" | "concurrent"> {
  expires?: EpochMs;
  rpm?: number;
  tpm?: number;
  budget?: number;
  every?: string;
  align?: Alignment;
  timezone?: string;
  portal?: PortalRights;
}

/** False: the setting is removed. */
interface SetOptions {
  name?: string | false;
  models?: string[];
  expires?: EpochMs | "never";
  rpm?: number | false;
  tpm?: number | false;
  concurrent?: number | false;
  budget?: number | false;
  every?: string;
  align?: Alignment;
  timezone?: string;
  portal?: PortalRights;
}

function alignOption(): Option {
  const about = "windows of the budget: from its beginning on (opening), or days, weeks or months (calendar)";
  return new Option("--align <alignment>", about).choices(alignments);
}

const timezoneOption = [
  "--timezone <zone>",
  "zone of a calendar, such as Europe/Berlin (default: that of the plan)",
  timezone,
] as const;

const asListed = "as key list shows it";

export function keyCommand(cli: Cli): Command {
  const key = new Command("key").description("issue, list, change, rotate and revoke API keys");

  const creating = key
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
    .option(
      "--budget <credits>",
      "credits that the key may spend in each period; needs --every",
      budgetCredits,
    )
    .option(
      "--every <period>",
      "period of the budget, ISO 8601: PT5H, P1D, P1M; needs --budget",
      refillPeriod,
    )
    .addOption(alignOption())
    .option(...timezoneOption)
    .addOption(portalOption())
    .addHelpText(
      "after",
      examples(
        inkwell("key create ada --name laptop"),
        inkwell("key create ada --name trial --expires 2027-01-31 --rpm 20 --models smollm2-135m-instruct"),
        inkwell("key create ada --name research --budget 500 --every P1M --align calendar"),
        `KEY=$(${inkwell("key create ada")})`,
      ),
    )
    .action(
      async (
        account: string,
        { expires, rpm, tpm, budget: credits, every, align, timezone, ...options }: CreateOptions,
      ) => {
        if ((credits === undefined) !== (every === undefined))
          creating.error("error: a budget needs both options: --budget CREDITS --every PERIOD");
        if (every === undefined && (align !== undefined || timezone !== undefined))
          creating.error("error: --align and --timezone belong to a budget");
        const budget =
          credits === undefined || every === undefined ? undefined : { credits, every, align, timezone };
        const limits = { expiresMs: expires, requestsPerMinute: rpm, tokensPerMinute: tpm };
        await create(cli, account, { ...options, ...limits, budget });
      },
    );

  key
    .command("list")
    .description("list the keys of one account, or of all, without their secrets")
    .argument("[account]", "as account list shows it")
    .option("--all", "include revoked and expired keys")
    .action((account: string | undefined, { all = false }: { all?: boolean }) => list(cli, account, all));

  key
    .command("show")
    .description("show one key: its settings, budget and old secret")
    .argument("<id>", asListed)
    .action((id: string) => show(cli, id));

  key
    .command("lookup")
    .description("show which key and account a secret belongs to; reads the secret from stdin")
    .addHelpText("after", examples(inkwell("key lookup < secret.txt")))
    .action(() => lookUp(cli));

  const setting = key
    .command("set")
    .description("change settings of a key, from its next request on; other settings stay")
    .argument("<id>", asListed)
    .option("--name <name>", "a label", label)
    .option("--no-name", "remove the label")
    .option("--models <ids>", "models that the key may use, comma-separated; * for all of the plan", modelIds)
    .option("--expires <time>", 'expiry, ISO 8601, or "never"', expiry)
    .option("--rpm <number>", "requests per minute", limit)
    .option("--no-rpm", "remove the limit of requests per minute")
    .option("--tpm <number>", "tokens per minute", limit)
    .option("--no-tpm", "remove the limit of tokens per minute")
    .option("--concurrent <number>", "requests at a time", limit)
    .option("--no-concurrent", "remove the limit of requests at a time")
    .option("--budget <credits>", "another amount of the budget keeps its window", budgetCredits)
    .option(
      "--every <period>",
      "another period of the budget begins a window, in which what was spent counts",
      refillPeriod,
    )
    .addOption(alignOption())
    .option(...timezoneOption)
    .option("--no-budget", "remove the budget")
    .addOption(portalOption())
    .addHelpText(
      "after",
      examples(
        inkwell("key set key_1f2e3d4c5b6a7988 --budget 500 --every P1M"),
        inkwell("key set key_1f2e3d4c5b6a7988 --budget 800"),
        inkwell("key set key_1f2e3d4c5b6a7988 --models smollm2-135m-instruct --no-tpm --expires never"),
      ),
    )
    .action(async (id: string, options: SetOptions) => {
      if (Object.keys(options).length === 0)
        setting.error("error: nothing to change: name at least one setting");
      const { budget, every, align, timezone } = options;
      if (budget === false && [every, align, timezone].some((option) => option !== undefined))
        setting.error("error: --no-budget excludes --every, --align and --timezone");
      await set(cli, id, changeOf(options));
    });

  key
    .command("rotate")
    .description("give a key a new secret; prints it once, alone on stdout")
    .argument("<id>", asListed)
    .option(
      "--overlap <period>",
      `how long the old secret stays valid, at most a year, or "${noOverlap}"`,
      overlap,
      defaultOverlap,
    )
    .addHelpText(
      "after",
      examples(
        `KEY=$(${inkwell("key rotate key_1f2e3d4c5b6a7988")})`,
        inkwell("key rotate key_1f2e3d4c5b6a7988 --overlap PT1H"),
        inkwell(`key rotate key_1f2e3d4c5b6a7988 --overlap ${noOverlap}`),
      ),
    )
    .action((id: string, options: { overlap: string }) => rotate(cli, id, options.overlap));

  key
    .command("revoke")
    .description("revoke a key with both of its secrets, at once and for good")
    .argument("<id>", asListed)
    .action((id: string) => revoke(cli, id));

  return key;
}

function portalOption(): Option {
  return new Option(
    "--portal <rights>",
    "what the key may do in the portal: see itself, or manage all keys of its account",
  ).choices(portalRights);
}

function expiry(value: string): EpochMs | "never" {
  return value === "never" ? value : moment(value);
}

function overlap(value: string): string {
  if (value === noOverlap) return value;
  try {
    return period(value);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw new InvalidArgumentError(`It is a period such as PT1H or P1D, or "${noOverlap}".`);
  }
}

function changeOf({
  name,
  models,
  expires,
  rpm,
  tpm,
  concurrent,
  budget,
  every,
  align,
  timezone,
  portal,
}: SetOptions): KeyChange {
  const parts = [budget, every, align, timezone];
  const hasBudget = parts.some((part) => part !== undefined);
  return {
    name: name === false ? null : name,
    models,
    expiresMs: expires === "never" ? null : expires,
    requestsPerMinute: rpm === false ? null : rpm,
    tokensPerMinute: tpm === false ? null : tpm,
    concurrent: concurrent === false ? null : concurrent,
    portal,
    budget: budget === false ? null : hasBudget ? { credits: budget, every, align, timezone } : undefined,
  };
}

async function create(cli: Cli, account: string, options: KeyOptions): Promise<void> {
  const config = cli.config();
  await cli.withActions(config, async (actions) => {
    const { key, row } = await actions.keys.issue(account, options);
    cli.print(newKeyObject.of({ key, ...row }), key);
    cli.remark(
      `The key of ${account} is shown only now. Keep it safe. To revoke it: ${inkwell(`key revoke ${row.id}`)}`,
    );
  });
}

async function list(cli: Cli, account: string | undefined, all: boolean): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { ledgerMs: nowMs } = await actions.clock();
    const keys = await actions.keys.list(account);
    const shown = all ? keys : keys.filter((row) => stateOf(row, nowMs) === "active");
    cli.print(shown.map(keyObject.of), keyTable(shown, nowMs));
    const hidden = keys.length - shown.length;
    const command = [inkwell("key list"), ...(account === undefined ? [] : [account]), "--all"].join(" ");
    if (hidden > 0) cli.remark(`${hidden} more, revoked or expired: ${command}`);
    if (keys.length === 0)
      cli.remark(`There are no keys yet. To issue one: ${inkwell(`key create ${account ?? "ACCOUNT"}`)}`);
  });
}

async function show(cli: Cli, id: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { ledgerMs: nowMs } = await actions.clock();
    const row = await actions.keys.find(id);
    cli.print(keyObject.of(row), keyDetails(row, nowMs));
  });
}

async function lookUp(cli: Cli): Promise<void> {
  if (cli.host.stdin.isTTY === true) cli.remark("Enter the key, and press Enter:");
  const secret = await firstLine(cli.host.stdin);
  await cli.withActions(cli.config(), async (actions) => {
    const { ledgerMs: nowMs } = await actions.clock();
    const found = await actions.keys.lookUp(secret);
    const { row, secret: which, isUsable } = found;
    cli.print(keyOfSecretObject.of(found), keyDetails(row, nowMs));
    const old = which === "old" ? "It is the secret before the last rotation. " : "";
    cli.remark(`${old}Requests with this secret are ${isUsable ? "authenticated" : "refused"}.`);
  });
}

async function set(cli: Cli, id: string, change: KeyChange): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { ledgerMs: nowMs } = await actions.clock();
    const row = await actions.keys.change(id, `set-${randomUUID()}`, change);
    cli.print(keyObject.of(row), keyDetails(row, nowMs));
    cli.remark(`Key ${id} of ${row.account} is changed. Its next request uses these settings.`);
  });
}

async function rotate(cli: Cli, id: string, overlap: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { key, row } = await actions.keys.rotate(id, `rotate-${randomUUID()}`, overlap);
    cli.print(newKeyObject.of({ key, ...row }), key ?? "");
    const old =
      row.oldUntilMs === null ? "has ended" : `stays valid until ${new Date(row.oldUntilMs).toISOString()}`;
    cli.remark(`The new secret of key ${id} is shown only now. Keep it safe. The old secret ${old}.`);
  });
}

async function revoke(cli: Cli, id: string): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const { row, revokedBefore } = await actions.keys.revoke(id);
    cli.print(keyObject.of(row), "");
    cli.remark(
      revokedBefore
        ? `Key ${id} was revoked before, at ${shortTime(row.revokedMs)}.`
        : `Key ${id} of ${row.account} is revoked. Requests with it are refused from now on.`,
    );
  });
}
