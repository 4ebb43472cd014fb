/**
 * Four stop sequences of 77 KB that nearly match a repeating answer do not block the program,
 * neither while the text is held back nor when it is released. Quadratic matching took half a
 * minute.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents } from "../fixtures/events.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { assertFreeLoop, startWatchedService } from "../fixtures/watched-service.ts";

const stopLength = 77_000;
const letters = 80_000;

test("keeps the event loop free while long stop sequences nearly match an answer", async () => {
  await using upstream = await startUpstream();
  upstream.play = async (call) => {
    await call.send(first);
    const hundred = text("a").repeat(100);
    for (let sent = 0; sent < letters; sent += 100) await call.send(hundred);
    // Ends the match and so releases the held text.
    await call.stream(text("x"), finish(), usage(5, letters + 1), done);
  };
  await using service = await startWatchedService({
    moreModels: `  big: { engine: upstream, url: "${upstream.url}", model: m, context_window: 131072, price: { prompt: 1, completion: 1 } }`,
  });
  const stop = ["b", "c", "d", "e"].map((end) => "a".repeat(stopLength - 1) + end);
  let answer = "";
  await assertFreeLoop(service, async () => {
    const response = await fetch(`${service.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${service.keys[0]}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "big", messages: [{ role: "user", content: "Hi" }], stream: true, stop }),
    });
    answer = await response.text();
    assert.equal(response.status, 200, answer);
  });
  const { texts } = readEvents(answer);
  assert.equal(texts.length, letters + 1, "each token is an event of its own");
  assert.equal(texts.join(""), `${"a".repeat(letters)}x`);
});
