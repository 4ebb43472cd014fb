/** `inkwell find`, on the ledger of a folder. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { cliLedger } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

test("finds an account and its payment, as a table and as JSON", async () => {
  await ledger.inkwell("account", "create", "ada", "--plan", "starter", "--owner", "Zoë Müller");
  await ledger.inkwell("credits", "add", "ada", "5", "--payment", "muller-7");
  const { code, stdout } = await ledger.inkwell("find", "MULLER");
  assert.equal(code, 0);
  assert.match(stdout, /^KIND +ID +ACCOUNT +NAME/);
  assert.match(stdout, /^account +ada +ada +Zoë Müller/m);
  assert.match(stdout, /^payment +muller-7 +ada +Zoë Müller +5 /m);
  const found = JSON.parse((await ledger.inkwell("--json", "find", "müller", "--limit", "1")).stdout);
  assert.deepEqual(
    found.map(({ kind, id }: { kind: string; id: string }) => [kind, id]),
    [["account", "ada"]],
  );
  const none = await ledger.inkwell("find", "nobody");
  assert.deepEqual([none.code, none.stdout, none.stderr], [0, "", "Nothing begins with this.\n"]);
});
