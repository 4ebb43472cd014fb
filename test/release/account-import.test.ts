/** An import is killed between two rows. The same command completes it. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { hashKey } from "../../src/accounts/keys.ts";
import { inkwell } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { newFolder, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

test("an import that is killed again and again is completed by the same command: each account is opened once, and has its key in the file", async () => {
  await using folder = await newFolder();
  const accounts = 300;
  const lines = Array.from({ length: accounts }, (_, n) => `a${n},starter,Owner ${n},5,pi_${n}\n`);
  writeFileSync(
    path.join(folder.path, "accounts.csv"),
    `account,plan,owner,additional,payment\n${lines.join("")}`,
  );
  const keysFile = path.join(folder.path, "keys.csv");
  const imports = ["account", "import", "accounts.csv", "--keys", "keys.csv"];
  const opened = () => Number(query(folder.path, "select count(*) as n from account")[0]?.n) - 1;
  const created = await inkwell(folder.path, ["account", "create", "zoe", "--plan", "starter"]);
  assert.equal(created.code, 0, created.stderr);
  const kills = 4;
  for (let n = 1; n <= kills; n += 1) {
    await using importing = startProgram(folder.path, { args: imports });
    const enough = (n * accounts) / (kills + 2);
    await until(`${enough} accounts are open`, () => existsSync(keysFile) && opened() >= enough);
    await importing.stop("SIGKILL");
    assert.ok(opened() < accounts, `${opened()} accounts`);
  }
  const before = opened();
  const listed = readFileSync(keysFile, "utf8").split("\r\n").slice(0, -1);
  const again = await inkwell(folder.path, imports);
  assert.equal(again.code, 0, again.stderr);
  const counts = `Accounts: ${before} unchanged, ${accounts - before} opened.`;
  assert.ok(again.stderr.includes(counts), again.stderr);
  const [head, ...keys] = readFileSync(keysFile, "utf8").trimEnd().split("\r\n");
  assert.deepEqual([head, ...keys].slice(0, listed.length), listed, "listed secrets stay");
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
  assert.equal(keys.length, accounts);
  const sums = query(
    folder.path,
    "select count(*) as n, sum(amount) as paid from credit_grant where payment is not null",
  );
  assert.partialDeepStrictEqual(sums, [{ n: accounts, paid: accounts * 5_000_000 }]);
  assertSoundLedger(folder.path);
});
