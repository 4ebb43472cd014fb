/**
 * The ledger of each release (tools/release-ledger.ts) in the hands of this version: it is
 * upgraded, says what it said then, and is used further. Each folder of `test/releases` is tested.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fieldOf } from "../../src/objects.ts";
import { ask } from "../fixtures/http-stream.ts";
import { inkwell, startInside } from "../fixtures/inner-program.ts";
import { type Fields, fieldsOf, listOf } from "../fixtures/operator.ts";
import { noPostgres } from "../fixtures/postgres.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { quickTimes } from "../fixtures/quick-times.ts";
import {
  answersAt,
  copyReleased,
  type ReleasedStore,
  releasedVersions,
  releaseToken,
} from "../fixtures/released-ledger.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";

/** Texts for people may change. */
const texts = ["sentence"];

/** What was said then is still so. An answer may have further fields. */
function assertKept(now: unknown, then: unknown, where: string): void {
  if (Array.isArray(then)) {
    assert.ok(Array.isArray(now) && now.length === then.length, `${where} has ${then.length} items`);
    for (const [n, item] of then.entries()) assertKept(now[n], item, `${where}[${n}]`);
  } else if (typeof then === "object" && then !== null) {
    for (const [name, value] of Object.entries(then))
      if (!texts.includes(name)) assertKept(fieldOf(now, name), value, `${where}.${name}`);
  } else assert.equal(now, then, where);
}

async function copyOf(version: string, store: ReleasedStore) {
  const opened = new AsyncDisposableStack();
  const { path: folder } = opened.use(await newFolder());
  const upstream = opened.use(await startUpstream());
  const { known, env: ofLedger, remove } = await copyReleased(version, store, folder);
  opened.defer(remove);
  const portal = `${await freePort()}`;
  const env: Record<string, string> = {
    ...ofLedger,
    INKWELL_OPERATOR_TOKEN: releaseToken,
    INKWELL_PORTAL_PORT: portal,
    UPSTREAM_URL: upstream.url,
    // It takes no event.
    RECEIVER_URL: upstream.url,
    PORTAL_URL: `http://127.0.0.1:${portal}`,
  };
  const assertSound = async () => {
    const { code, stdout, stderr } = await inkwell(folder, ["audit"], { env });
    assert.equal(code, 0, stdout + stderr);
  };
  return { folder, env, known, assertSound, [Symbol.asyncDispose]: () => opened.disposeAsync() };
}

/** The rows of an answer of then. */
function rowsOf(known: { answers: Record<string, unknown> }, path: string): Fields[] {
  return listOf(fieldsOf(known.answers[`${path}?limit=500`]).data);
}

const versions = releasedVersions();
const stores = [
  { store: "SQLite", skip: false },
  { store: "PostgreSQL", skip: noPostgres ?? false },
] as const;

test("there is a released ledger", () => assert.ok(versions.length > 0));

for (const version of versions) {
  for (const { store, skip } of stores) {
    describe(`the ledger of ${version} on ${store}`, { skip }, () => {
      test("is sound after the upgrade, and each balance, receipt, entry and sum is as it was", async () => {
        await using copy = await copyOf(version, store);
        const { folder, env, known } = copy;
        const paths = Object.keys(known.answers);
        assert.ok(paths.length > 40, `${paths.length} answers`);
        const answers = await answersAt({ folder, env, atMs: known.at_ms }, paths);
        for (const path of paths) assertKept(answers[path], known.answers[path], path);
        await copy.assertSound();
      });

      test("is taken over by the service: holds end by their checkpoints, and a key of then pays", async () => {
        await using copy = await copyOf(version, store);
        const { folder, env, known } = copy;
        await using program = startInside(folder, { env, times: quickTimes });
        const { url, operatorUrl } = await program.up();
        const get = async (path: string) => {
          const headers = { authorization: `Bearer ${releaseToken}` };
          const response = await fetch(`${operatorUrl}${path}`, { headers });
          const text = await response.text();
          assert.equal(response.status, 200, text);
          return fieldsOf(JSON.parse(text));
        };
        const receiptOf = async (id: unknown) => {
          const [receipt, ...others] = listOf((await get(`/admin/usage?request_id=${id}`)).data);
          assert.ok(receipt !== undefined && others.length === 0, `${id} has one receipt`);
          return receipt;
        };

        const holds = rowsOf(known, "/admin/holds");
        assert.ok(holds.some(({ completion_tokens }) => Number(completion_tokens) > 0));
        await until(
          "the holds have ended",
          async () => listOf((await get("/admin/holds")).data).length === 0,
        );
        for (const hold of holds) {
          const receipt = await receiptOf(hold.request_id);
          assert.equal(receipt.ending, "expired");
          for (const name of ["account", "key", "model", "prompt_tokens", "completion_tokens"])
            assert.equal(receipt[name], hold[name], `${name} as at the last checkpoint`);
        }

        const key = known.keys.ada ?? "";
        const answer = await ask({ url, key, model: "plain", max_tokens: 5 });
        assert.equal(answer.status, 200, await answer.text());
        const { prompt_tokens, completion_tokens, cost_micro } = await receiptOf(
          answer.headers.get("x-request-id"),
        );
        // The prices of the configuration of then.
        assert.equal(cost_micro, 100_000 * Number(prompt_tokens) + 1_000_000 * Number(completion_tokens));

        const later = listOf((await get("/admin/usage?limit=500")).data);
        const kept = new Map(later.map((receipt) => [receipt.request_id, receipt]));
        for (const receipt of rowsOf(known, "/admin/usage"))
          assertKept(kept.get(receipt.request_id), receipt, `the receipt ${receipt.request_id}`);
        assert.equal(later.length, rowsOf(known, "/admin/usage").length + holds.length + 1);
        assert.equal(await program.stop(), 0);
        await copy.assertSound();
      });
    });
  }
}
