/** Backup and restore of the SQLite file: whole, beside a server at work, and never over another file. */
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
import { credits, hold, keyOf, settle } from "../fixtures/ledger-rows.ts";
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
  await store.commit([{ kind: "open", account: "ada", plan: "starter" }]);
  await store.addKey(keyOf("key", "ada", { hash: "0".repeat(64) }));
  await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amount: credits(5) },
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

test("a backup of a ledger under load is one sound moment of it, for its owner only", async () => {
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
          .prepare("select note from journal where kind = 'topup'")
          .all()
          .map(({ note }) => note),
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

test("restored, after a crash that left its log behind: the moment of the backup, sound and at work", async () => {
  backUpSqlite(file(path), copy);
  const child = startStoreChild(path, "lost", 1_000_000);
  await child.printed(50);
  child.kill();
  await child.ended;
  assert.ok(existsSync(`${path}-wal`), "a killed process leaves its log");

  // As docs/operating/backup.md describes: stop, put the three files aside, copy, audit, start.
  for (const ending of ["", "-wal", "-shm"]) rmSync(`${path}${ending}`);
  copyFileSync(copy, path);
  assert.deepEqual(soundness(path).broken, []);
  const store = await openSqliteStore({ path, plans });
  assert.deepEqual(
    (await store.usage({ limit: 10 })).map(({ id }) => id),
    ["done"],
  );
  // What was paid since is sent again, and what was in the backup does not count twice.
  const [again, sent] = await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amount: credits(5) },
    { kind: "topup", account: "ada", payment: "lost-a-0", amount: paidEach },
    settle("running", 7),
  ]);
  assert.deepEqual(
    [again, sent].map((outcome) => outcome?.kind === "added" && outcome.replayed),
    [true, false],
  );
  assert.deepEqual((await store.audit()).broken, []);
  await store.close();
});

test("nothing is overwritten", () => {
  writeFileSync(copy, "a letter");
  refused(/already exists/);
  assert.equal(readFileSync(copy, "utf8"), "a letter");
});

test("of two backups to one name at once, the second is refused", () => {
  writeFileSync(`${copy}.part`, "");
  refused(/another backup to the same name is running, or one was interrupted/);
  assert.ok(existsSync(`${copy}.part`), "the first one goes on");
  assert.ok(!existsSync(copy));
});

test("a folder that is not there is said, and nothing is left behind", () => {
  const nowhere = join(folder, "nowhere");
  refused(
    new RegExp(`^The folder ${nowhere} for the backup x\\.db does not exist\\. Create it`),
    join(nowhere, "x.db"),
  );
  // The name is as long as names may be, so that the one that it has until it is whole is too long.
  const long = join(folder, "x".repeat(255));
  refused(/^The backup \S+x cannot be written \(ENAMETOOLONG: .*(?<!\.part)'\)/, long);
});

test("what is no database of Inkwell's is not copied, and none is made", () => {
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
