/**
 * `inkwell plans`, and what other commands report about the plans of the database and of the
 * configuration, on a real ledger.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, beforeEach, test } from "node:test";
import { services } from "../../src/cli/services.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { type RunOptions, runCli } from "../fixtures/cli-host.ts";
import { refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { listOf } from "../fixtures/operator.ts";

const { openStore, readPlansInUse } = services;
let cwd = "";
beforeEach(() => {
  if (cwd !== "") rmSync(cwd, { recursive: true });
  cwd = mkdtempSync(path.join(tmpdir(), "inkwell-plans-"));
});
after(() => rmSync(cwd, { recursive: true }));

const starter = "{ base: { credits: 1000, every: P1D }, overage: { credits: 200, every: P1M } }";
const larger = starter.replace("1000", "2500");
const narrow = starter.replace(/ }$/, ", limits: { requests_per_minute: 5 }, models: [small] }");

/** Writes the plans of the configuration. */
function write(plans: Record<string, string>): void {
  const lines = Object.entries(plans).map(([id, plan]) => `  ${id}: ${plan}\n`);
  const model = "{ engine: llama, source: default, price: { prompt: 10, completion: 30 } }";
  writeFileSync(path.join(cwd, "inkwell.yaml"), `plans:\n${lines.join("")}models:\n  small: ${model}\n`);
}

function run(argv: string, changes: RunOptions["services"] = {}) {
  return runCli(argv.split(" "), { cwd, services: { openStore, readPlansInUse, ...changes } });
}

async function done(argv: string): Promise<{ stdout: string; stderr: string }> {
  const { code, ...output } = await run(argv);
  assert.equal(code, 0, output.stderr);
  return output;
}

test("list shows every plan with its newest version, state and accounts", async () => {
  write({ starter, trial: starter });
  await done("account create ada --plan trial");
  await done("account create bob --plan starter");
  write({ starter: larger, pro: narrow });
  const { stderr } = await done("plans list");
  assert.equal(
    stderr,
    "The plans of the configuration differ. To compare them: ./inkwell plans apply --dry-run\n",
  );
  await done("plans apply");
  const listed = await done("plans list");
  assert.equal(listed.stderr, "");
  const times = /\d{4}-\d\d-\d\d \d\d:\d\dZ/g;
  assert.equal(
    listed.stdout.replaceAll(times, "TIME"),
    `PLAN     VERSION  STATE    ACCOUNTS  CREATED            GRANTS
starter        2  offered         1  TIME  2,500 credits every P1D, overage 200 every P1M
pro            1  offered         0  TIME  1,000 credits every P1D, overage 200 every P1M, 5 requests/min, models small
trial          1  retired         1  TIME  1,000 credits every P1D, overage 200 every P1M
`,
  );
  const all = (await done("plans list --versions")).stdout.split("\n");
  assert.match(all[2] ?? "", /^starter +1 +earlier +\S+ \S+ +1,000 credits/);
  const document = listOf(JSON.parse((await done("plans list --json")).stdout));
  assert.deepEqual(
    document.map(({ id, offered, accounts, versions }) => [id, offered, accounts, listOf(versions).length]),
    [
      ["starter", true, 1, 2],
      ["pro", true, 0, 1],
      ["trial", false, 1, 1],
    ],
  );
});

test("apply shows what changes, makes superseded plans current again, and is safe to repeat", async () => {
  write({ starter, trial: starter });
  await done("account create ada --plan trial");
  write({ starter: larger, pro: starter });
  const expected = `added    pro: 1,000 credits every P1D, overage 200 every P1M
changed  starter: 2,500 credits every P1D, overage 200 every P1M; before: 1,000 credits every P1D, overage 200 every P1M
retired  trial
`;
  const preview = await done("plans apply --dry-run");
  assert.deepEqual([preview.stdout, preview.stderr.startsWith("Nothing has changed.")], [expected, true]);
  assert.equal((await done("plans apply --dry-run")).stdout, expected, "the preview changed nothing");
  assert.equal((await done("plans apply")).stdout, expected);
  const again = await done("plans apply");
  assert.equal(again.stdout, "");
  assert.equal(
    again.stderr,
    "The plans of the configuration are current. Nothing has changed. A running service uses the file that it has read: after a change, ./inkwell reload first.\n",
  );

  write({ starter, trial: starter });
  const back = JSON.parse((await done("plans apply --json")).stdout);
  assert.deepEqual(back, {
    applied: true,
    added: ["trial"],
    changed: ["starter"],
    retired: ["pro"],
    warnings: [],
  });
  assert.match((await done("plans list")).stdout, /^starter +3 +offered/m);
  assert.match((await done("balance ada")).stdout, /plan trial/);
});

test("apply shows a change of the alignment or of the zone of calendar windows", async () => {
  const caps = ", caps: [{ name: dear, credits: 5, every: P1D }] }";
  const some = starter.replace(/ }$/, caps);
  write({ starter: some });
  await done("account create ada --plan starter");
  write({ starter: some.replaceAll("every: P1D", "every: P1D, align: calendar") });
  const text = "1,000 credits every P1D, overage 200 every P1M, at most 5 every P1D (dear)";
  const aligned =
    "1,000 credits every P1D (calendar), overage 200 every P1M, at most 5 every P1D (calendar, dear)";
  assert.equal(
    (await done("plans apply")).stdout,
    `changed  starter: ${aligned}, zone UTC; before: ${text}; with nothing spent, these caps begin: dear\n`,
  );
  const file = path.join(cwd, "inkwell.yaml");
  writeFileSync(file, `timezone: Europe/Berlin\n${readFileSync(file, "utf8")}`);
  assert.equal(
    (await done("plans apply")).stdout,
    `changed  starter: ${aligned}, zone Europe/Berlin; before: ${aligned}, zone UTC; with nothing spent, these caps begin: dear\n`,
  );
});

test("apply needs a ledger and a valid configuration", async () => {
  write({ starter });
  refused(await run("plans apply"), /^There is no ledger at/);
  assert.ok(!existsSync(path.join(cwd, "data")));
  wrongUsage(await run("plans"), /^Usage: \.\/inkwell plans/);
  await done("account create ada --plan starter");
  write({ starter: "{ base: { credits: -1, every: P1D }, overage: { credits: 0, every: P1D } }" });
  refused(
    await run("plans apply"),
    /^The configuration is wrong:[\s\S]*inkwell\.yaml:2: plans\.starter\.base\.credits/,
  );
});

test("no account can be put on a plan that only the configuration has, or that is retired", async () => {
  write({ starter, trial: starter });
  await done("account create ada --plan trial");
  write({ starter, pro: starter });
  const unapplied =
    /The configuration has pro, which the current plans do not offer\. .*: \.\/inkwell plans apply\n$/;
  for (const argv of ["account create bob --plan pro", "account set ada --plan pro"]) {
    const ran = await run(argv);
    refused(ran, /^There is no plan "pro"\. Defined: starter, trial\./);
    refused(ran, unapplied);
  }
  await done("plans apply");
  await done("account set ada --plan pro --at now");
  refused(await run("account set ada --plan trial"), /^The plan "trial" is retired: [^;]*\n$/);
  write({ starter, trial: starter, pro: starter });
  refused(
    await run("account set ada --plan trial"),
    /^The plan "trial" is retired: .* The configuration has trial, which the current plans do not offer\./,
  );
});

test("config check compares the plans with those of the ledger and changes nothing", async () => {
  write({ starter, trial: starter });
  assert.match((await done("config check")).stderr, /There is no ledger yet\./);
  assert.ok(!existsSync(path.join(cwd, "data")));
  await done("account create ada --plan trial");
  await done("account create bob --plan trial");
  const valid = "The configuration is valid: 2 plans, 1 model.\n";
  assert.equal((await done("config check")).stderr, valid);
  write({ starter: larger, pro: starter });
  const text = `${valid}A start or a reload would change the plans of the ledger:
added    pro: 1,000 credits every P1D, overage 200 every P1M
changed  starter: 2,500 credits every P1D, overage 200 every P1M; before: 1,000 credits every P1D, overage 200 every P1M
retired  trial
Retired plans that accounts still have, and keep: trial (2 accounts).
`;
  assert.equal((await done("config check")).stderr, text);
  assert.equal((await done("config check")).stderr, text, "the check changed nothing");
  await done("plans apply");
  write({ starter, trial: starter });
  assert.match(
    (await done("config check")).stderr,
    /Newer plans have replaced those .*: \.\/inkwell plans apply\n$/,
  );
});

test("config check succeeds if the plans of the ledger cannot be read, and reports that", async () => {
  write({ starter });
  const unreadable = () => Promise.reject(new StoreUnavailableError("it is locked"));
  const { code, stderr } = await run("config check", { readPlansInUse: unreadable });
  assert.equal(code, 0);
  assert.match(stderr, /^The plans were not compared with those of the ledger: it is locked$/m);
  writeFileSync(path.join(cwd, "other.db"), "no database");
  const env = { INKWELL_DATABASE: "sqlite:other.db" };
  const other = await runCli(["config", "check"], { cwd, env, services: { readPlansInUse } });
  assert.equal(other.code, 0);
  assert.match(other.stderr, /^The plans were not compared .*other\.db/m);
});

test("apply and previews name the caps that begin with nothing spent, and credits add names all", async () => {
  const capped = (caps: string) => starter.replace(/ }$/, `, caps: [${caps}] }`);
  write({
    starter,
    capped: capped("{ credits: 300, every: PT5H }, { name: dear, credits: 900, every: P1D }"),
  });
  await done("account create ada --plan starter");
  const preview = await done("account set ada --plan capped --at now --dry-run");
  assert.match(preview.stdout, /^cap PT5H: 300 of 300 left \(PT5H\); refreshes /m);
  assert.match(preview.stdout, /^These caps begin then, with nothing spent: PT5H, dear\.$/m);
  await done("account set ada --plan capped --at now");
  const added = await done("credits add ada 50 --payment p1");
  assert.equal(
    added.stderr,
    "50 credits added to ada. The caps of its plan count them too: 300/PT5H, dear 900/P1D. It has 50 additional credits now.\n",
  );
  // Another amount and other models count the same.
  write({
    starter,
    capped: capped(
      "{ credits: 200, every: PT300M }, { name: cheap, credits: 900, every: P1D, models: [s*] }",
    ),
  });
  const applied = await done("plans apply --dry-run");
  assert.match(
    applied.stdout,
    /^changed {2}capped: .*; before: .*; with nothing spent, these caps begin: PT300M, cheap$/m,
  );
  write({
    starter,
    capped: capped(
      "{ name: PT5H, credits: 200, every: PT300M }, { name: dear, credits: 1, every: P1D, models: [s*] }",
    ),
  });
  assert.doesNotMatch((await done("plans apply --dry-run")).stdout, /begin/);
});

test("a draft is the lines to paste alone on stdout, with who is affected and what changes beside it", async () => {
  write({ starter, trial: starter });
  await done("account create ada --plan trial");
  const draft = await done("plans draft trial --base-credits 2500 --rpm 5 --models small");
  assert.match(draft.stderr, /^plans\.trial\.base\.credits +1000 +2500$/m);
  assert.match(draft.stderr, /^1 account on the plan\. Limits, models and caps count from/m);
  assert.match(draft.stderr, /^Nothing has changed: paste the lines into inkwell\.yaml, and reload\.$/m);
  const file = path.join(cwd, "inkwell.yaml");
  const pasted = readFileSync(file, "utf8").replace(/^ {2}trial:.*\n/m, draft.stdout);
  writeFileSync(file, pasted);
  const { stderr, stdout } = await done("config check");
  assert.match(stderr, /^The configuration is valid/);
  assert.match(
    stdout,
    /^plan +trial: 2,500 credits every P1D, overage 200 every P1M, 5 requests\/min, models small$/m,
  );
  refused(await run("plans draft tril"), /Did you mean trial\?/);
  refused(await run("models draft small --prompt 5"), /^No service runs here/);
});
