/**
 * Hostile requests of several accounts, and hostile answers of an upstream, do not block the
 * program. The limit applies to the processor time of the main thread between two turns of the
 * event loop, and is a few times that of a control in the same thread and second. It is generous:
 * without limits each of these requests took 1 to 30 s.
 *
 * `npm run bench -- blocking` measures all of them.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { attacks, run } from "../fixtures/attacks.ts";
import { readEvents } from "../fixtures/events.ts";
import { some } from "../fixtures/thorough.ts";
import { type Call, startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { assertFreeLoop, startWatchedService, type WatchedService } from "../fixtures/watched-service.ts";

const attackMs = 400;

const hostileModel = "hostile";
/** Its window is large enough for long stop sequences. */
const wideModel = "wide";
const stopLength = 38_000;
const letters = 40_000;

let upstream: Upstream;
let service: WatchedService;
before(async () => {
  upstream = await startUpstream();
  const settings = `engine: upstream, url: "${upstream.url}", model: any, price: { prompt: 0, completion: 0 }`;
  const moreModels = `  ${hostileModel}: { ${settings}, context_window: 8192 }
  ${wideModel}: { ${settings}, context_window: 131072 }`;
  service = await startWatchedService({ moreModels });
});
after(async () => {
  await service[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const names = [
  "20 x 4 MB of text",
  "20 x 130,000 messages",
  "20 x 300,000 unknown fields of a message",
  "20 x 32,000 objects with a key of their own",
  "20 x 4 MB of opening brackets",
  "bodies in chunks of one byte",
  "pipelined requests without a key",
];
for (const name of some(names, 4)) {
  test(`keeps the event loop free during ${name}`, async () => {
    const attack = attacks.find((each) => each.name === name);
    assert.ok(attack !== undefined, `no attack is called ${name}`);
    await assertFreeLoop(service, () => run(attack, service, attackMs));
  });
}

/**
 * In a message, it asks for a hostile answer. Every second answer of each account is whole, so
 * that its circuit breaker does not end the attack.
 */
const hostileWord = "attack";
const lineEnds = `${"\r".repeat(65_535)}\u20ac`;
const hostileParts: [name: string, part: string][] = [
  ["line ends and characters beyond Latin-1", lineEnds],
  ["lines that are no fields", "a\n".repeat(65_536)],
];
for (const [name, part] of some(hostileParts, 2)) {
  test(`keeps the event loop free during answers of an upstream with ${name}`, async () => {
    upstream.play = async (call: Call) => {
      const isHostile = JSON.stringify(call.body).includes(hostileWord);
      for (let n = 0; isHostile && n < 20 && !call.isClosed; n += 1) await call.send(part);
      await call.stream(text("ok"), finish(), done);
    };
    await assertFreeLoop(service, async () => {
      for (let round = 0; round < 4; round += 1) {
        const asked = service.keys.map((key, n) =>
          askHostile(key, (round + n) % 2 === 0 ? hostileWord : "Hi"),
        );
        await Promise.all(asked);
      }
    });
  });
}

test("keeps the event loop free while long stop sequences nearly match an answer", async () => {
  // Neither while the text is held back nor when the end of the match releases it.
  upstream.play = async (call) => {
    await call.send(first);
    const hundred = text("a").repeat(100);
    for (let sent = 0; sent < letters; sent += 100) await call.send(hundred);
    await call.stream(text("x"), finish(), usage(5, letters + 1), done);
  };
  const stop = ["b", "c", "d", "e"].map((end) => "a".repeat(stopLength - 1) + end);
  let answer = "";
  await assertFreeLoop(service, async () => {
    const response = await ask(service.keys[0] ?? "", { model: wideModel, stream: true, stop });
    answer = await response.text();
    assert.equal(response.status, 200, answer);
  });
  const { texts } = readEvents(answer);
  assert.equal(texts.length, letters + 1, "each token is an event of its own");
  assert.equal(texts.join(""), `${"a".repeat(letters)}x`);
});

async function askHostile(key: string, content: string): Promise<void> {
  const response = await ask(key, { model: hostileModel, messages: [{ role: "user", content }] });
  const answer = await response.text();
  assert.ok(response.status === 200 || response.status === 502, answer);
}

function ask(key: string, body: object): Promise<Response> {
  return fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ messages: [{ role: "user", content: "Hi" }], ...body }),
  });
}
