/** `inkwell usage`: filters, formats, and reading by the page. */
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Ran } from "../fixtures/cli-host.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf } from "../fixtures/ledger-rows.ts";
import { day } from "../fixtures/times.ts";

const ledger = cliLedger(`plans:
  starter: { base: { credits: 2, every: P1D }, overage: { credits: 0, every: P1M } }
models:
  small: { engine: llama, source: default, price: { prompt: 1, completion: 1 } }
`);

/**
 * Account `ada` has h1 and h2 of the 15th, `bob` h3 of the 16th, of which he could pay two thirds.
 */
beforeEach(async () => {
  const { store } = ledger;
  for (const account of ["ada", "bob"]) {
    await store.commit([{ kind: "open", account, plan: "starter", by: "test" }]);
    await addKey(store, keyOf(`key of ${account}`, account));
  }
  const ada = { account: "ada", key: "key of ada" };
  const bob = { account: "bob", key: "key of bob" };
  const usage = { promptTokens: 1000, cachedTokens: 200, completionTokens: 500, reasoningTokens: 0 };
  await store.commit([
    hold("h1", credits(1), ada),
    settle("h1", 0, { usage, account: "ada" }),
    hold("h2", 0, ada),
    settle("h2", 0, { account: "ada", ending: "client_gone" }),
  ]);
  ledger.nowMs += day;
  await store.commit([
    hold("h3", credits(1), bob),
    settle("h3", credits(3), { account: "bob", estimated: true, ending: "length" }),
  ]);
});

async function usage(...argv: string[]): Promise<Ran> {
  return await ledger.inkwell("usage", ...argv);
}

async function idsOf(...argv: string[]): Promise<string[]> {
  const { code, stdout, stderr } = await usage("--json", ...argv);
  assert.equal(code, 0, stderr);
  const rows: { request_id: string }[] = JSON.parse(stdout);
  return rows.map(({ request_id }) => request_id);
}

test("lists what requests used and cost, with a sum", async () => {
  const { code, stdout, stderr } = await usage();
  assert.equal(code, 0);
  assert.deepEqual(
    stdout
      .trimEnd()
      .split("\n")
      .map((line) => line.split(/ {2,}/)),
    [
      ["FINISHED", "ACCOUNT", "MODEL", "PROMPT", "CACHED", "COMPLETION", "CREDITS", "ENDING", "REQUEST"],
      ["2027-01-15 12:00Z", "ada", "model", "1,000", "200", "500", "0.0015", "stop", "h1"],
      ["2027-01-15 12:00Z", "ada", "model", "0", "0", "0", "0", "client_gone", "h2"],
      ["2027-01-16 12:00Z", "bob", "model", "0", "0", "3,000,000?", "2", "length", "h3"],
    ],
  );
  assert.equal(stderr, "3 requests, 3,001,500 tokens, 2.0015 credits.\n");
});

test("filters by account and time: --from is included, --to excluded", async () => {
  assert.deepEqual(await idsOf(), ["h1", "h2", "h3"]);
  assert.deepEqual(await idsOf("ada"), ["h1", "h2"]);
  assert.deepEqual(await idsOf("--from", "2027-01-16"), ["h3"]);
  assert.deepEqual(await idsOf("--to", "2027-01-16"), ["h1", "h2"]);
  assert.deepEqual(await idsOf("--from", "2027-01-15T12:00:00Z", "--to", "2027-01-16T12:00:00Z"), [
    "h1",
    "h2",
  ]);
  assert.deepEqual(await idsOf("bob", "--to", "2027-01-16"), []);
});

test("prints every field of a receipt as CSV, with the names of the JSON", async () => {
  const [row] = JSON.parse((await usage("--json", "bob")).stdout);
  const { code, stdout, stderr } = await usage("--csv", "bob");
  const [names, line, ...others] = stdout.split("\r\n");
  assert.deepEqual({ code, names, others }, { code: 0, names: Object.keys(row).join(","), others: [""] });
  assert.equal(line, Object.values(row).join(","));
  assert.equal(row.shortfall_micro, credits(1));
  assert.equal(stderr, "");
});

test("escapes CSV fields for programs and spreadsheets", async () => {
  const [row] = await ledger.store.usage({ id: "h1", limit: 1 });
  assert.ok(row !== undefined);
  const texts: [model: string, field: string][] = [
    ["a,b", '"a,b"'],
    ['say "a"', '"say ""a"""'],
    ["a\r\nb", '"a\r\nb"'],
    ["=1+1", "'=1+1"],
    ["+1", "'+1"],
    ["-1", "'-1"],
    ["@sum(a)", "'@sum(a)"],
    ['=cmd("x"),1', `"'=cmd(""x""),1"`],
    ["a=b-c", "a=b-c"],
  ];
  ledger.store.usage = async () => texts.map(([model]) => ({ ...row, model }));
  const { stdout } = await usage("--csv");
  const before = `h1,ada,key of ada,`;
  assert.deepEqual(
    stdout.split(before).slice(1),
    texts.map(([, field]) => stdout.split(before).at(-1)?.replace("a=b-c", field)),
  );
});

test("prints an empty list, table or CSV if nothing matches", async () => {
  const none = ["ada", "--from", "2100-01-01"];
  assert.equal((await usage("--json", ...none)).stdout, "[]\n");
  const { code, stdout, stderr } = await usage(...none);
  assert.deepEqual(
    { code, stdout, stderr },
    { code: 0, stdout: "", stderr: "No matching request has finished.\n" },
  );
  assert.match((await usage("--csv", ...none)).stdout, /^request_id,[\w,]+\r\n$/);
});

test("refuses an unknown account, both formats at once, and invalid times", async () => {
  refused(await usage("nobody"), /There is no account nobody/);
  for (const argv of [
    ["--from", "yesterday"],
    ["--to", "2027-02-31"],
  ]) {
    const { code, stdout } = await usage(...argv);
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "" });
  }
  for (const to of ["2026-01-01", "2026-12-01"])
    refused(
      await usage("--from", "2026-12-01", "--to", to),
      /--to must be after the beginning of the period/,
    );
  const both = await usage("--csv", "--json");
  assert.equal(both.code, 2);
  assert.match(JSON.parse(both.stdout).error.message, /^it is --csv or --json, not both/);
});

test("reads and writes thousands of receipts a page at a time", async () => {
  const { store } = ledger;
  const [row] = await store.usage({ id: "h1", limit: 1 });
  assert.ok(row !== undefined);
  const asked: number[] = [];
  store.usage = async ({ limit, after }) => {
    asked.push(limit);
    const from = after?.seq ?? 0;
    const rows = from >= 1500 ? 7 : limit;
    return Array.from({ length: rows }, (_, n) => ({ ...row, id: `r${from + n + 1}`, seq: from + n + 1 }));
  };
  const ids = await idsOf();
  assert.deepEqual(asked, [501, 501, 501, 501]);
  assert.equal(ids.length, 1507);
  assert.equal(new Set(ids).size, 1507);
  const { stdout } = await usage();
  const lines = stdout.trimEnd().split("\n");
  assert.equal(lines.length, 1508);
  assert.equal(lines.filter((line) => line.startsWith("FINISHED")).length, 1, "one line of heads");
});

const cells = (text: string) =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => line.trim().split(/ {2,}/));

test("sums by day, account, key and model, with a total and whether it is final", async () => {
  const byAccount = await usage("--by", "account");
  assert.deepEqual(cells(byAccount.stdout), [
    ["ACCOUNT", "REQUESTS", "PROMPT", "CACHED", "COMPLETION", "CREDITS", "BASE", "OVERAGE", "ADDITIONAL"],
    ["bob", "1", "0", "0", "3,000,000", "2", "2", "0", "0"],
    ["ada", "2", "1,000", "200", "500", "0.0015", "0.0015", "0", "0"],
  ]);
  assert.equal(
    byAccount.stderr,
    "Total: 3 requests, 3,001,500 tokens, 2.0015 credits.\n" +
      "Written off: 1 credits that accounts did not have.\nProvisional: no day is final. Days are in UTC.\n",
  );
  const byDay = cells((await usage("--by", "day", "--from", "2027-01-16")).stdout);
  assert.deepEqual(byDay[1]?.slice(0, 4), ["2027-01-16", "provisional", "1", "0"]);
  assert.equal(byDay.length, 2);
  assert.deepEqual(
    cells((await usage("--by", "key", "--limit", "1")).stdout)
      .slice(1)[0]
      ?.slice(0, 2),
    ["key of bob", "bob"],
  );
  assert.deepEqual(
    cells((await usage("ada", "--by", "model")).stdout)
      .slice(1)[0]
      ?.slice(0, 2),
    ["model", "2"],
  );
});

test("prints sums as JSON and as CSV with the same fields, amounts in credits there", async () => {
  const report = JSON.parse((await usage("--json", "--by", "account", "--to", "2027-01-16")).stdout);
  const { data, total, ...period } = report;
  assert.deepEqual(period, {
    by: "account",
    from: null,
    to: "2027-01-16",
    final: false,
    final_until: null,
    timezone: "UTC",
    currency: null,
    next: null,
  });
  assert.equal(data.length, 1);
  assert.equal(total.cost_micro, 1500);
  const [names, line, ...others] = (
    await usage("--csv", "--by", "account", "--to", "2027-01-16")
  ).stdout.split("\r\n");
  const fields = Object.keys(data[0]).map((name) => name.replace("_micro", ""));
  assert.deepEqual([names, others], [[...fields, "currency"].join(","), [""]]);
  assert.equal(line, ",ada,,,,,,false,2,0,1000,200,500,0,0.0015,0.0015,0,0,0,,,");
});

test("the last week begins on Monday, and the last month on the first", async () => {
  // A Saturday.
  const { data: days, ...week } = JSON.parse(
    (await usage("--json", "--by", "account", "--last", "week")).stdout,
  );
  assert.deepEqual([days, week.from, week.to], [[], "2027-01-04", "2027-01-11"]);
  ledger.nowMs += 31 * day;
  const month = JSON.parse((await usage("--json", "--by", "account", "--last", "month")).stdout);
  assert.deepEqual([month.from, month.to], ["2027-01-01", "2027-02-01"]);
  assert.equal(month.data.length, 2);
  wrongUsage(await usage("--last", "month", "--to", "2027-01-16"), /it is --last, or --from and --to/);
});

test("filters by key, model and request", async () => {
  assert.deepEqual(await idsOf("--key", "key of bob"), ["h3"]);
  assert.deepEqual(await idsOf("--model", "other"), []);
  assert.deepEqual(await idsOf("--request-id", "h2"), ["h2"]);
});

test("a late settlement is a charge of its own, of the same request", async () => {
  const ofBob = { account: "bob", key: "key of bob" };
  ledger.nowMs += day;
  const used = { promptTokens: 7, cachedTokens: 0, completionTokens: 3, reasoningTokens: 0 };
  await ledger.store.commit([
    hold("late", 100, { ...ofBob, ttlMs: 0 }),
    { kind: "extend", account: "bob", requestId: "late", n: 1, moreMicro: 1, usage: used, ttlMs: 0 },
    { kind: "expire", account: "bob", requestId: "late" },
  ]);
  await ledger.store.commit([
    settle("late", 0, { account: "bob", usage: { ...used, promptTokens: 5, completionTokens: 9 } }),
  ]);
  const { stdout, stderr } = await usage("--request-id", "late");
  assert.deepEqual(
    cells(stdout).map((row) => row.slice(3)),
    [
      ["PROMPT", "CACHED", "COMPLETION", "CREDITS", "ENDING", "REQUEST"],
      ["7", "0", "3", "0.00001", "expired", "late"],
      ["-2", "0", "6", "0.000004", "stop (late)", "late"],
    ],
  );
  assert.equal(stderr, "1 request, 14 tokens, 0.000014 credits.\n");
});

test("refuses options that do not fit together", async () => {
  wrongUsage(await usage("--by", "month"), /Allowed choices are day, model, key, account/);
  wrongUsage(await usage("--limit", "3"), /--limit needs --by/);
  wrongUsage(await usage("--by", "day", "--request-id", "h1"), /leave out --by/);
  refused(
    await usage("--by", "day", "--from", "2027-01-16T12:00:00Z"),
    /--from must be a day, 2027-01-31, or the start of one in UTC/,
  );
});

test("sums the last hours, by hour and by model", async () => {
  ledger.nowMs += 30 * 60_000;
  const shown = await usage("--hours", "1");
  assert.deepEqual(cells(shown.stdout), [
    ["HOUR", "REQUESTS", "PROMPT", "CACHED", "COMPLETION", "CREDITS"],
    ["2027-01-16 12:00Z", "1", "0", "0", "3,000,000", "2"],
  ]);
  const byModel = await usage("ada", "--hours", "48", "--by", "model");
  assert.deepEqual(cells(byModel.stdout).slice(1), [
    ["2027-01-15 12:00Z", "model", "2", "1,000", "200", "500", "0.0015"],
  ]);
  const none = await usage("ada", "--hours", "24");
  assert.equal(none.stderr, "No matching request has finished since 2027-01-15T13:00:00.000Z.\n");
  const report = JSON.parse((await usage("--json", "--hours", "2", "--model", "model")).stdout);
  assert.deepEqual([report.to, report.data.length], ["2027-01-16T13:00:00.000Z", 1]);
  refused(await usage("zoe", "--hours", "2"), /There is no account zoe/);
  wrongUsage(await usage("--hours", "169"), /--hours must be a whole number of hours from 1 to 168/);
  wrongUsage(await usage("--hours", "2", "--by", "day"), /--hours takes an account/);
  wrongUsage(await usage("--hours", "2", "--csv"), /--hours takes an account/);
});
