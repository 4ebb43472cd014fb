/** Text events from the bytes of tokens: characters, stop sequences, thinking. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { TokenLogprob } from "../../src/chat/engine.ts";
import { CompletionText } from "../../src/engines/llama/decode/completion-text.ts";
import type { ThinkTags } from "../../src/engines/text/thinking-filter.ts";
import { anyCharacter } from "../fixtures/characters.ts";
import { share } from "../fixtures/thorough.ts";

const tags: ThinkTags = ["<think>", "</think>"];

interface Setting {
  stop?: string[];
  thinkTags?: ThinkTags | null;
  thinking?: boolean;
  dropFirstSpace?: boolean;
}

function completion({ stop = [], thinkTags = null, thinking = false, dropFirstSpace = false }: Setting = {}) {
  return new CompletionText({ stop, thinkTags, thinking, dropFirstSpace });
}

/** The events that each token gives, then those at the end. Tokens as text, or as bytes. */
function run(tokens: (string | number[])[], setting: Setting = {}) {
  const text = completion(setting);
  const steps: string[][] = [];
  for (const token of tokens) {
    steps.push(
      text
        .push(typeof token === "string" ? Buffer.from(token) : Uint8Array.from(token))
        .map((event) => event.text),
    );
    if (text.stopped) break;
  }
  const end = text.end().map((event) => event.text);
  return {
    steps,
    end,
    all: [...steps.flat(), ...end],
    stopped: text.stopped,
    reasoning: text.reasoningTokens,
  };
}

/** The text's bytes cut into tokens at arbitrary places. */
const cutText = (text: fc.Arbitrary<string>) =>
  fc.tuple(text, fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1 })).map(([whole, sizes]) => {
    const bytes = [...Buffer.from(whole)];
    const tokens: number[][] = [];
    for (let index = 0; bytes.length > 0; index++) tokens.push(bytes.splice(0, sizes[index % sizes.length]));
    return { whole, tokens };
  });

test("yields one event for each token with text of its own", () => {
  assert.deepEqual(run(["One", " two", "", " three"]).steps, [["One"], [" two"], [], [" three"]]);
});

test("joins a token that ends inside a character to the token that completes it", () => {
  const wave = [...Buffer.from("🌊")];
  assert.deepEqual(run([[0x20, ...wave.slice(0, 2)], wave.slice(2, 3), wave.slice(3), "!"]).steps, [
    [],
    [],
    [" 🌊"],
    ["!"],
  ]);
});

test("a token that completes one character and begins the next is sent at once", () => {
  const [a, b, c, d] = [...Buffer.from("éü")];
  assert.ok(a !== undefined && b !== undefined && c !== undefined && d !== undefined);
  assert.deepEqual(run([[a], [b, c], [d]]).steps, [[], ["é"], ["ü"]]);
});

/** The first and the last characters of each length in UTF-8, and some between. */
const characters = ["\u0080", "é", "\u07ff", "\u0800", "€", "\ud7ff", "\ue000", "\ufffd", "\uffff"]
  .concat(["\u{10000}", "🌊", "\u{40000}", "\u{10ffff}"])
  .map((character) => [...Buffer.from(character)]);

/** All ways to cut bytes into tokens. */
function* cuts(bytes: number[]): Generator<number[][]> {
  if (bytes.length === 0) yield [];
  for (let length = 1; length <= bytes.length; length++) {
    for (const rest of cuts(bytes.slice(length))) yield [bytes.slice(0, length), ...rest];
  }
}

test("leaves out every part of every kind of character at the end, however it is cut", () => {
  let ends = 0;
  for (const character of characters) {
    for (let length = 1; length < character.length; length++) {
      const part = character.slice(0, length);
      for (const [before, shown] of [
        ["", ""],
        ["a", "a"],
        ["é", "é"],
        ["\ufffd", "\ufffd"],
      ] as const) {
        for (const tokens of cuts([...Buffer.from(before), ...part])) {
          const { all, end } = run(tokens);
          assert.equal(all.join(""), shown, JSON.stringify(tokens));
          assert.ok(!all.includes("") && !end.includes(""), "no event without text");
          const whole = run([...tokens, character.slice(length)]);
          assert.equal(whole.all.join(""), before + Buffer.from(character).toString());
          ends += 1;
        }
      }
    }
  }
  assert.ok(ends > 500, `${ends} ends`);
});

test("replaces invalid bytes by U+FFFD, in the text and at its end", () => {
  assert.deepEqual(run([[0xff], "a"]).all, ["\ufffd", "a"]);
  assert.deepEqual(run([[0xe2, 0x82], "a"]).all, ["\ufffda"], "a part of a character before other text");
  assert.deepEqual(run([[0xe2, 0x82], "a", [0xf0, 0x9f]]).all, ["\ufffda"]);
  // No character begins with these bytes.
  for (const bytes of [[0xff], [0xc0], [0x80], [0xe0, 0x80], [0xed, 0xa0], [0xf0, 0x80], [0xf4, 0x90]]) {
    const text = run(["a", bytes]).all.join("");
    assert.equal(text, `a${"\ufffd".repeat(bytes.length)}`, JSON.stringify(bytes));
  }
});

test("property: invalid bytes become U+FFFD, and only a part of a character at the end is left out", () => {
  const lead = fc.constantFrom(0x41, 0x80, 0x9f, 0xa0, 0xbf, 0xc2, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xff);
  const tokens = fc.array(fc.array(lead, { maxLength: 5 }), { maxLength: 12 });
  fc.assert(
    fc.property(tokens, (cut) => {
      // A decoder that expects more bytes keeps a part of a character, and nothing else.
      const expected = new TextDecoder().decode(Uint8Array.from(cut.flat()), { stream: true });
      assert.equal(run(cut).all.join(""), expected);
    }),
    { numRuns: share(2000) },
  );
});

test("counts the tokens of an unfinished character in the thinking as reasoning", () => {
  const cut = run(["<think>", "a", [0xf0], [0x9f]], { thinkTags: tags });
  assert.deepEqual([cut.all, cut.reasoning], [[], 4]);
});

test("keeps the exact bytes of a token that completes text and begins a character", () => {
  const text = completion();
  const logprob = (bytes: number[]): TokenLogprob => ({ token: "", logprob: -1, bytes, topLogprobs: [] });
  assert.deepEqual(text.push(Uint8Array.of(0x61, 0xe2), logprob([0x61, 0xe2])), []);
  assert.deepEqual(text.end(), [{ type: "text", text: "a", logprobs: [logprob([0x61, 0xe2])] }]);
});

test("finds a stop sequence before an unfinished character", () => {
  const { all, stopped } = run(["one", [...Buffer.from("END"), 0xe2]], { stop: ["END"] });
  assert.deepEqual([all, stopped], [["one"], true]);
});

test("property: events join to the text, however its bytes are cut into tokens", () => {
  fc.assert(
    fc.property(cutText(fc.string({ unit: anyCharacter })), ({ whole, tokens }) => {
      assert.equal(run(tokens).all.join(""), whole);
    }),
  );
});

test("keeps log-probabilities with the text of their tokens, also of joined tokens", () => {
  const text = completion();
  const logprob = (token: string): TokenLogprob => ({ token, logprob: -1, bytes: [], topLogprobs: [] });
  const [first, second] = [...Buffer.from("é")];
  assert.ok(first !== undefined && second !== undefined);
  assert.deepEqual(text.push(Uint8Array.of(first), logprob("1")), []);
  assert.deepEqual(text.push(Uint8Array.of(second), logprob("2")), [
    { type: "text", text: "é", logprobs: [logprob("1"), logprob("2")] },
  ]);
});

test("never sends a stop sequence across tokens, or any text after it", () => {
  const { steps, all, stopped } = run(["One", " tw", "o th", "ree"], { stop: ["two"] });
  assert.deepEqual(steps, [["One"], [], [" "]]);
  assert.deepEqual(all, ["One", " "]);
  assert.equal(stopped, true);
});

test("holds text that may begin a stop sequence, then sends one event for each token", () => {
  assert.deepEqual(run(["a", "b", "c", "x", "d"], { stop: ["abcd"] }).steps, [
    [],
    [],
    [],
    ["a", "b", "c", "x"],
    ["d"],
  ]);
});

test("sends held text at the end of the text", () => {
  assert.deepEqual(run(["on", "e"], { stop: ["one more"] }).end, ["on", "e"]);
});

test("the first complete stop sequence ends the text", () => {
  assert.deepEqual(run(["abc", "def"], { stop: ["cdef", "bc"] }).all, ["a"]);
  assert.deepEqual(run(["abc"], { stop: ["c", "bc", "abc"] }).all, []);
});

test("property: events join to the text before the first stop sequence", () => {
  const alphabet = fc.string({ unit: fc.constantFrom("a", "b", "é"), maxLength: 40 });
  const stops = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "é"), minLength: 1, maxLength: 4 }), {
    maxLength: 4,
  });
  fc.assert(
    fc.property(cutText(alphabet), stops, ({ whole, tokens }, stop) => {
      const found = run(tokens, { stop });
      const occurs = stop.some((needle) => whole.includes(needle));
      assert.equal(found.stopped, occurs);
      const sent = found.all.join("");
      assert.ok(whole.startsWith(sent));
      assert.ok(!stop.some((needle) => sent.includes(needle)));
      if (occurs) assert.ok(stop.some((needle) => whole.startsWith(needle, sent.length)));
      else assert.equal(sent, whole);
    }),
  );
});

test("counts thinking, its tags and the blank after them, and sends none of it", () => {
  const { all, reasoning } = run(["<think>", "Hm", ".", "</think>", "\n\n", "Yes", "."], { thinkTags: tags });
  assert.deepEqual(all, ["Yes", "."]);
  assert.equal(reasoning, 5);
});

test("thinking that the prompt opens begins with the first token", () => {
  const { all, reasoning } = run(["Hm", "</think>", "Yes"], { thinkTags: tags, thinking: true });
  assert.deepEqual(all, ["Yes"]);
  assert.equal(reasoning, 2);
});

test("finds tags across tokens, and sends text that only resembles a tag", () => {
  assert.deepEqual(run(["Hi", " <th", "ink", ">hm</", "think", "> yes"], { thinkTags: tags }).all, [
    "Hi",
    " ",
    "yes",
  ]);
  assert.deepEqual(run(["a <", "thin", "g>"], { thinkTags: tags }).all, ["a <", "thin", "g>"]);
});

test("an answer that ends during thinking has no text and only reasoning tokens", () => {
  const { all, reasoning } = run(["<think>", "Hm", " </thi", [0xf0]], { thinkTags: tags });
  assert.deepEqual(all, []);
  assert.equal(reasoning, 4);
});

test("ignores stop sequences in the thinking", () => {
  const { all, stopped } = run(["<think>", "stop", "</think>", "go ", "stop"], {
    thinkTags: tags,
    stop: ["stop"],
  });
  assert.deepEqual(all, ["go "]);
  assert.equal(stopped, true);
});

test("continues with the answer after thinking reached its limit", () => {
  const text = completion({ thinkTags: tags, thinking: true });
  for (const token of ["Hm", " </thi"]) text.push(Buffer.from(token));
  assert.equal(text.reasoningTokens, 2);
  text.closeThinking();
  assert.equal(text.thinking, false);
  assert.deepEqual(
    ["\n", "Yes"].flatMap((token) => text.push(Buffer.from(token))),
    [{ type: "text", text: "Yes" }],
  );
  assert.equal(text.reasoningTokens, 3);
});

test("property: text and counts of thinking do not depend on token borders", () => {
  const part = fc.string({ unit: fc.constantFrom("a", "<", "é", "think>"), maxLength: 6 });
  const text = fc
    .tuple(part, part, part)
    .map(([before, inside, after]) => `${before}<think>${inside}</think>x${after}`);
  fc.assert(
    fc.property(cutText(text), ({ whole, tokens }) => {
      const uncut = run([whole], { thinkTags: tags }).all.join("");
      const cut = run(tokens, { thinkTags: tags });
      assert.equal(cut.all.join(""), uncut);
      assert.ok(cut.reasoning <= tokens.length);
    }),
  );
});

test("removes the space that a tokenizer puts before the first word", () => {
  assert.deepEqual(run([" Hello", " world"], { dropFirstSpace: true }).all, ["Hello", " world"]);
  assert.deepEqual(run([" ", "Hello"], { dropFirstSpace: true }).steps, [[], ["Hello"]]);
});
