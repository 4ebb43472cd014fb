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
import { configureUpstream } from "../fixtures/upstream-program.ts";

const preload = fileURLToPath(new URL("../fixtures/faked-clock.ts", import.meta.url));
const halfYear = 182 * day;
const token = "operator-token-0123456789";

async function clockIn(operatorUrl: string): Promise<unknown> {
  const response = await fetch(`${operatorUrl}/readyz`);
  assert.equal(response.status, 200);
  const { clock } = JSON.parse(await response.text());
  return clock;
}

async function followedMetric(operatorUrl: string): Promise<string | undefined> {
  const text = await (await fetch(`${operatorUrl}/metrics`)).text();
  return /^inkwell_clock_followed (\d)$/m.exec(text)?.[1];
}

test("a wrong clock is not followed, a start believes it, and the next one is refused until it is accepted", async (t) => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  const env = { INKWELL_OPERATOR_TOKEN: token };
  const setAhead = (ms: number) => writeFileSync(path.join(folder.path, "clock-ahead"), String(ms));
  const newest = () =>
    query(
      folder.path,
      "select max(at_ms) as at_ms from (select at_ms from journal union all select at_ms from charge)",
    )[0];
  const windows = () => query(folder.path, "select count(*) as n from journal where kind = 'window'")[0]?.n;
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
    assert.deepEqual([await clockIn(operatorUrl), await followedMetric(operatorUrl)], ["ok", "1"]);
    setAhead(halfYear);
    await request();
    assert.ok(Number(newest()?.at_ms) - beganMs < hour, "the entry has ledger time");
    await until("the clock is reported as ahead", async () => (await clockIn(operatorUrl)) === "ahead");
    assert.equal(await followedMetric(operatorUrl), "0");
    await service.shows("more than a day beyond the uptime");
    assert.equal(service.stderr.match(/more than a day beyond the uptime/g)?.length, 1);
    setAhead(0);
    await service.shows("the ledger follows the clock again");
    assert.equal(await clockIn(operatorUrl), "ok");
    await request();
    assert.equal(windows(), 2);
    await service.stop();
  }

  setAhead(halfYear);
  {
    await using service = startProgram(folder.path, { entry: quickEntry, env, preload });
    const { operatorUrl } = await service.up();
    await service.shows("more than a day after the last record");
    assert.equal(await clockIn(operatorUrl), "ok");
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const body = JSON.stringify({ credits: 5, payment_id: "p" });
    const paid = await fetch(`${operatorUrl}/admin/accounts/default/topups`, {
      method: "POST",
      headers,
      body,
    });
    assert.equal(paid.status, 200);
    assert.ok(Number(newest()?.at_ms) - beganMs > halfYear - hour);
    setAhead(0);
    await service.shows("stands until the clock has caught up");
    assert.equal(await clockIn(operatorUrl), "behind");
    await service.stop();
  }

  for (const command of [["account", "list"], ["serve"]]) {
    const { code, stderr } = await inkwell(folder.path, command, { env });
    assert.equal(code, 1);
    assert.match(stderr, /more than a day before the time of the ledger.*clock accept/);
  }
  const accepted = await inkwell(folder.path, ["clock", "accept", "--json"], { env });
  assert.equal(accepted.code, 0, accepted.stderr);
  const { ledger_at, clock_at } = JSON.parse(accepted.stdout);
  assert.ok(Date.parse(ledger_at) - Date.parse(clock_at) > halfYear - hour);
  const again = await inkwell(folder.path, ["clock", "accept"], { env });
  assert.deepEqual([again.code, again.stdout], [1, ""]);
  assert.match(again.stderr, /Nothing has changed/);
  const [record] = query(folder.path, "select * from change_log where kind = 'clock'");
  assert.equal(record?.by, `command_line:${userInfo().username}`);
  assert.equal(JSON.parse(String(record.after)).ledger_at, ledger_at);
  await using service = startProgram(folder.path, { entry: quickEntry, env, preload });
  const { operatorUrl } = await service.up();
  assert.equal(await clockIn(operatorUrl), "behind");
  await service.stop();
  assertSoundLedger(folder.path);
});
