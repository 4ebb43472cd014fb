/**
 * docs/api.md documents every header on rate limits and every additional field of the model list.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { modelList, rateHeaders } from "../../src/http/openai-format/response.ts";
import { PuppetEngine } from "../fixtures/puppet-engine.ts";

const text = readFileSync(path.join(import.meta.dirname, "../../docs/api.md"), "utf8");

test("documents each x-ratelimit header", () => {
  const state = { limit: 1, remaining: 1, resetMs: 1 };
  const names = Object.keys(rateHeaders({ requests: state, tokens: state }));
  assert.equal(names.length, 6);
  for (const name of names) assert.ok(text.includes(`| \`${name}\` |`), name);
});

test("documents each additional field of the model list", () => {
  const price = { prompt: 1, completion: 2 };
  const model = {
    id: "m",
    engine: new PuppetEngine(),
    price,
    outputTokensMax: 4096,
    created: 0,
  };
  const [shown] = modelList([model]).data;
  const standard = ["id", "object", "created", "owned_by"];
  const added = Object.keys(shown ?? {}).filter((name) => !standard.includes(name));
  assert.ok(added.length > 0);
  for (const name of added) assert.ok(text.includes(`| \`${name}\` |`), name);
});
