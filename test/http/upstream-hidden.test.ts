/** Upstreams that report tokens only at the end, for example thinking that is not streamed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { balanceOf, startFront } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

/** One credit pays for about 33,000 completion tokens; the window is larger. */
const narrow = { contextWindow: 100_000, ...balanceOf(1, { prompt: 10, completion: 30 }) };
const boughtTokens = 33_000;
const hidden = { field: null, tags: null, opened: false, hidden: true };

test("asks a model with hidden thinking for no more tokens than the balance pays", async () => {
  await using front = await startFront({ ...narrow, reasoning: hidden });
  let asked = 0;
  front.upstream.play = (call) => {
    asked = Number(call.body.max_tokens);
    return call.stream(first, text("ok"), finish("length"), usage(5, asked), done);
  };
  const row = await front.receipt(await front.chat());
  assert.ok(asked > boughtTokens - 500 && asked < boughtTokens + 500, `${asked} were asked for`);
  assert.deepEqual([row?.completionTokens, row?.shortfallMicro, row?.ending], [asked, 0, "credits"]);
});

test("holds all tokens in advance after an upstream has reported too many at the end", async () => {
  await using front = await startFront(narrow);
  const asked: number[] = [];
  front.upstream.play = (call) => {
    asked.push(Number(call.body.max_tokens));
    return call.stream(first, text("ok"), finish(), usage(5, 300), done);
  };
  await front.chat();
  await front.chat();
  assert.ok((asked[0] ?? 0) > 90_000, "nothing was known of it");
  assert.ok((asked[1] ?? 0) < boughtTokens + 500);
  const warnings = front.log().match(/reported more tokens at the end/g);
  assert.equal(warnings?.length, 1);
});

test("ignores one extra token that ends the turn", async () => {
  await using front = await startFront(narrow);
  const events = Array.from({ length: 256 }, () => text("x"));
  front.upstream.play = (call) => call.stream(...events, finish(), usage(5, 257), done);
  await front.chat();
  await front.chat();
  assert.ok(Number(front.upstream.last().body.max_tokens) > 90_000);
});
