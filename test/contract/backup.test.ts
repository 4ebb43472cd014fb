/**
 * Backup and restore of the SQLite file: complete, while a server runs, and without overwriting a
 * file.
 */
import assert from "node:assert/strict";
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, beforeEach, test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { backUpSqlite } from "../../src/store/sqlite/backup.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf } from "../fixtures/ledger-rows.ts";
import { paidEach, childPlans as plans, startStoreChild } from "../fixtures/store-child.ts";

const folder = mkdtempSync(join(tmpdir(), "inkwell-backup-"));
after(() => rmSync(folder, { recursive: true }));

let count = 0;
let path = "";
let copy = "";
beforeEach(async () => {
  count += 1;
  path = join(folder, `${count}.db`);
  copy = join(folder, `${count}.backup`);
  const store = await openSqliteStore({ path, plans });
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
  await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" },
    hold("running", credits(1)),
    hold("done", credits(1)),
    settle("done", 100),
  ]);
  await store.close();
});

const file = (of: string) => ({ path: of, busyMs: 5000 });
const soundness = (of: string) => auditFile({ file: file(of), nowMs: Date.now() });

function refused(says: RegExp, to = copy, from = path): void {
  assert.throws(
    () => backUpSqlite(file(from), to),
    (error) => error instanceof OperatorError && says.test(error.message),
  );
}

test("a backup under load has one sound state, readable by its owner only", async () => {
  const child = startStoreChild(path, "load", 1_000_000);
  const sizes: number[] = [];
  try {
    for (let n = 1; n <= 5; n += 1) {
      await child.printed(60 * n);
      const known = [...child.acknowledged];
      const to = `${copy}-${n}`;
      const { bytes } = backUpSqlite(file(path), to);
      assert.equal(bytes, statSync(to).size);
      assert.equal(statSync(to).mode & 0o777, 0o600);
      assert.ok(!existsSync(`${to}.part`));
      const { broken, journalRows } = soundness(to);
      assert.deepEqual(broken, []);
      sizes.push(journalRows);
      const db = new DatabaseSync(to, { readOnly: true });
      const paid = new Set(
        db
          .prepare("select subject from journal where kind = 'payment'")
          .all()
          .map(({ subject }) => subject),
      );
      db.close();
      for (const line of known.filter((each) => each.startsWith("payment "))) {
        assert.ok(
          paid.has(line.slice("payment ".length)),
          `${line} was acknowledged before the backup began`,
        );
      }
    }
  } finally {
    child.kill();
    await child.ended;
  }
  assert.deepEqual(
    sizes,
    sizes.toSorted((a, b) => a - b),
    "each is of a later moment",
  );
  assert.ok((sizes.at(-1) ?? 0) > (sizes[0] ?? 0));
});

test("a restore after a crash that left a log has the sound state of the backup and works", async () => {
  backUpSqlite(file(path), copy);
  const child = startStoreChild(path, "lost", 1_000_000);
  await child.printed(50);
  child.kill();
  await child.ended;
  assert.ok(existsSync(`${path}-wal`), "a killed process leaves its log");

  // The steps of docs/operating/backup.md: stop, move the three files away, copy, audit, start.
  for (const ending of ["", "-wal", "-shm"]) rmSync(`${path}${ending}`);
  copyFileSync(copy, path);
  assert.deepEqual(soundness(path).broken, []);
  const store = await openSqliteStore({ path, plans });
  assert.deepEqual(
    (await store.usage({ limit: 10 })).map(({ id }) => id),
    ["done"],
  );
  // Payments since the backup are sent again, and payments in the backup do not count twice.
  const [again, sent] = await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amountMicro: credits(5), by: "test" },
    { kind: "topup", account: "ada", payment: "lost-a-0", amountMicro: paidEach, by: "test" },
    settle("running", 7),
  ]);
  assert.deepEqual(
    [again, sent].map((outcome) => outcome?.kind === "added" && outcome.replayed),
    [true, false],
  );
  await store.close();
  assert.deepEqual(soundness(path).broken, []);
});

test("does not overwrite a file", () => {
  writeFileSync(copy, "a letter");
  refused(/already exists/);
  assert.equal(readFileSync(copy, "utf8"), "a letter");
});

test("rejects a second backup to the same name while the first runs", () => {
  writeFileSync(`${copy}.part`, "");
  refused(/another backup to the same name is running, or one was interrupted/);
  assert.ok(existsSync(`${copy}.part`), "the first backup continues");
  assert.ok(!existsSync(copy));
});

test("reports a missing folder and leaves no file behind", () => {
  const nowhere = join(folder, "nowhere");
  refused(
    new RegExp(`^The folder ${nowhere} for the backup x\\.db does not exist\\. Create it`),
    join(nowhere, "x.db"),
  );
  // The name has the maximum length, so the temporary name is too long.
  const long = join(folder, "x".repeat(255));
  refused(/^The backup \S+x cannot be written \(ENAMETOOLONG: .*(?<!\.part)'\)/, long);
});

test("does not copy other files, and does not create a database", () => {
  const missing = join(folder, "missing.db");
  refused(/There is no database/, copy, missing);
  assert.ok(!existsSync(missing));
  const other = join(folder, "recipes.db");
  const db = new DatabaseSync(other);
  db.exec("create table recipe (name text)");
  db.close();
  refused(/not one of Inkwell's/, copy, other);
  assert.ok(!existsSync(copy) && !existsSync(`${copy}.part`));
});
