/** The program while the clock of its machine is wrong. */
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { userInfo } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ask } from "../fixtures/http-stream.ts";
import { inkwell } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { newFolder, quickEntry, startProgram } from "../fixtures/program.ts";
import { day, hour } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { upstreamModel } from "../fixtures/upstream-program.ts";

const preload = fileURLToPath(new URL("../fixtures/faked-clock.ts", import.meta.url));
const halfYear = 182 * day;
const token = "operator-token-0123456789";

async function clockIn(operatorUrl: string): Promise<unknown> {
  const response = await fetch(`${operatorUrl}/readyz`);
  assert.equal(response.status, 200);
  const { clock } = JSON.parse(await response.text());
  return clock;
}

async function trustedMetric(operatorUrl: string): Promise<string | undefined> {
  const text = await (await fetch(`${operatorUrl}/metrics`)).text();
  return /^inkwell_clock_trusted (\d)$/m.exec(text)?.[1];
}

test("a wrong clock changes no window, is reported, and is accepted by a command beside the service", async (t) => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const env = { ...upstreamModel(folder.path, upstream), INKWELL_OPERATOR_TOKEN: token };
  const setAhead = (ms: number) => writeFileSync(path.join(folder.path, "clock-ahead"), String(ms));
  const newest = () =>
    query(
      folder.path,
      "select max(at_ms) as at_ms from (select at_ms from journal union all select at_ms from charge)",
    )[0];
  const withThatClock = async (...args: string[]) => {
    await using command = startProgram(folder.path, { args, env, preload });
    const { code } = await command.ended;
    return { code, stdout: command.stdout, stderr: command.stderr };
  };
  const timeIn = (ms: number) => new Date(Date.now() + ms).toISOString();
  const clock = t.mock.method(Date, "now", () => Date.UTC(2006, 1, 3));
  const impossible = await inkwell(folder.path, ["serve"], { env });
  clock.mock.restore();
  assert.equal(impossible.code, 1);
  assert.match(impossible.stderr, /The clock shows 20.* but Inkwell .* was released on .* Set the clock/);
  assert.ok(!existsSync(path.join(folder.path, "data", "inkwell.db")), "nothing is written");
  setAhead(0);
  const beganMs = Date.now();
  {
    await using service = startProgram(folder.path, { entry: quickEntry, env, preload });
    const { url, operatorUrl, key } = await service.up();
    assert.ok(key !== null);
    const request = async () => assert.equal((await ask({ url, key, max_tokens: 4 })).status, 200);
    await request();
    assert.deepEqual([await clockIn(operatorUrl), await trustedMetric(operatorUrl)], ["ok", "1"]);

    setAhead(halfYear);
    await request();
    assert.ok(Number(newest()?.at_ms) - beganMs < hour, "the entry has ledger time");
    await until("the clock is reported as wrong", async () => (await clockIn(operatorUrl)) === "wrong");
    assert.equal(await trustedMetric(operatorUrl), "0");
    const reports = () => service.stderr.match(/the clock is wrong or has stepped/g)?.length;
    assert.equal(reports(), 1);
    const shown = await withThatClock("clock", "show", "--json");
    assert.equal(shown.code, 0, shown.stderr);
    const { trusted, clock_at, ledger_at } = JSON.parse(shown.stdout);
    assert.equal(trusted, false);
    assert.ok(Math.abs(Date.parse(clock_at) - Date.parse(ledger_at) - halfYear) < 1000);
    const added = await withThatClock("credits", "add", "default", "5", "--payment", "p1");
    assert.match(added.stderr, /not trusted/);
    assert.ok(Number(newest()?.at_ms) - beganMs < hour, "a command uses ledger time too");

    setAhead(0);
    await service.shows("the clock is trusted again");
    assert.equal(await clockIn(operatorUrl), "ok");
    assert.equal(reports(), 1);
    const refused = await inkwell(folder.path, ["clock", "accept", timeIn(halfYear)], { env });
    assert.deepEqual([refused.code, refused.stdout], [1, ""]);
    assert.match(refused.stderr, /The clock is trusted already/);
    setAhead(halfYear);
    await until("the clock is wrong again", async () => (await clockIn(operatorUrl)) === "wrong");
    await service.stop();
  }
  assert.equal(query(folder.path, "select count(*) as n from journal where kind = 'window'")[0]?.n, 2);

  await using service = startProgram(folder.path, { entry: quickEntry, env, preload });
  const { operatorUrl } = await service.up();
  assert.equal(await clockIn(operatorUrl), "wrong", "a start does not believe the clock either");
  const operate = async (address: string, body: object) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const url = `${operatorUrl}/admin${address}`;
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: response.status, text: await response.text() };
  };
  const doubted = await operate("/clock/accept", { time: timeIn(0) });
  assert.equal(doubted.status, 409);
  assert.match(doubted.text, /more than a minute from .* Nothing has changed/);
  const accepted = await withThatClock("clock", "accept", timeIn(halfYear), "--json");
  assert.equal(accepted.code, 0, accepted.stderr);
  await until("the service follows", async () => (await clockIn(operatorUrl)) === "ok");
  const [record] = query(folder.path, "select * from clock_accept");
  assert.deepEqual([record?.number, record?.by], [1, `command_line:${userInfo().username}`]);
  assert.ok(Math.abs(Number(record?.clock_ms) - Number(record?.ledger_ms) - halfYear) < 1000);
  const paid = await operate("/accounts/default/topups", { credits: 5, payment_id: "p2" });
  assert.equal(paid.status, 200, paid.text);
  assert.ok(Number(newest()?.at_ms) - beganMs > halfYear - hour);
  await service.stop();
  assertSoundLedger(folder.path);
});
