/** An import is killed between two of its steps. The same command completes it. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { hashKey } from "../../src/accounts/keys.ts";
import { inkwell } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { newFolder, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

test("an import that was killed is completed by the same command: each account is opened once, with its key", async () => {
  await using folder = await newFolder();
  const accounts = 1000;
  const today = new Date().toISOString();
  const lines = Array.from({ length: accounts }, (_, n) => `a${n},starter,${n},${today},5,pi_${n}\n`);
  const head = "account,plan,base_left,base_start,additional,payment\n";
  writeFileSync(path.join(folder.path, "accounts.csv"), head + lines.join(""));
  const imports = ["account", "import", "accounts.csv", "--keys", "keys.csv"];
  const opened = () => Number(query(folder.path, "select count(*) as n from account")[0]?.n) - 1;
  const created = await inkwell(folder.path, ["account", "create", "zoe", "--plan", "starter"]);
  assert.equal(created.code, 0, created.stderr);
  {
    await using importing = startProgram(folder.path, { args: imports });
    await until("the first step is written", () => opened() > 0);
    await importing.stop("SIGKILL");
  }
  const before = opened();
  assert.ok(before > 0 && before < accounts, `${before} accounts`);
  const again = await inkwell(folder.path, imports);
  assert.equal(again.code, 0, again.stderr);
  assert.ok(
    again.stderr.includes(`${(accounts - before).toLocaleString("en-US")} accounts opened`),
    again.stderr,
  );
  assert.equal(opened(), accounts);
  const [, ...keys] = readFileSync(path.join(folder.path, "keys.csv"), "utf8").trimEnd().split("\r\n");
  assert.deepEqual(
    keys
      .map((line) => {
        const [account, id, key = ""] = line.split(",");
        return [account, id, hashKey(key)].join();
      })
      .sort(),
    query(folder.path, "select account, id, hash from api_key")
      .map(({ account, id, hash }) => [account, id, hash].join())
      .sort(),
  );
  const sums = query(
    folder.path,
    "select count(*) as n, sum(amount) as paid from credit_grant where payment is not null",
  );
  assert.partialDeepStrictEqual(sums, [{ n: accounts, paid: accounts * 5_000_000 }]);
  const left = "select sum(base_amount - base_spent) as micro from account where id <> 'zoe'";
  assert.equal(query(folder.path, left)[0]?.micro, ((accounts * (accounts - 1)) / 2) * 1_000_000);
  assertSoundLedger(folder.path);
});
