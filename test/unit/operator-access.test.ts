/** The warning of a start that has made a new operator token. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OperatorActions } from "../../src/accounts/operator-actions.ts";
import { owner } from "../../src/actors.ts";
import { operatorAccess } from "../../src/app/operator-access.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { PersonSignIn } from "../../src/sign-in/person-sign-in.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { loggerTo } from "../fixtures/service.ts";
import { start } from "../fixtures/times.ts";

test("a new operator token is reported if operator keys were made with another one", async () => {
  const store = memoryStore(plansOf(planOf("starter", 100, 10)), () => start);
  const ledger = new Ledger(store, { retriesMs: [] });
  const lines: Record<string, unknown>[] = [];
  const logger = loggerTo(lines);
  const people = new PersonSignIn({ store, ledger, logger, token: "token", onError: () => {} }, null);
  const warnings = async (isNew: boolean) => {
    await operatorAccess({ store, token: { token: "token", isNew }, people, logger });
    return lines.splice(0).map(({ msg }) => String(msg));
  };
  const who = { actor: owner, timezone: () => "UTC", token: async () => "token" };
  const actions = new OperatorActions({ store, ledger, modelIds: () => ["small"], ...who });

  assert.deepEqual(await warnings(true), [], "the first start");
  const { row } = await actions.operatorKeys.make("op", { name: "bot", role: "viewer" });
  assert.deepEqual(await warnings(false), [], "a later start");
  const [warning, ...others] = await warnings(true);
  assert.match(String(warning), /^the operator token is new: .* restore that token, or make them again$/);
  assert.deepEqual(others, []);
  await actions.operatorKeys.end(row.id);
  assert.deepEqual(await warnings(true), [], "the key has ended");
});
