/** Stop sequences and thinking tags in text that arrives in segments. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Segment } from "../../src/engines/text/held-segments.ts";
import { SequenceMatcher } from "../../src/engines/text/sequence-matcher.ts";
import { StopFinder } from "../../src/engines/text/stop-finder.ts";
import { ThinkingFilter, type ThinkTags } from "../../src/engines/text/thinking-filter.ts";
import { assertAtMost, assertLinear } from "../fixtures/processor-time.ts";
import { isThorough, share } from "../fixtures/thorough.ts";

function piecesOf(texts: readonly string[]): Segment[] {
  return texts.map((text) => ({ text, tokens: 1, logprobs: [] }));
}

/** Passes the segments to a new finder; the texts that come out after each one, and at the end. */
function find(stops: readonly string[], texts: readonly string[]) {
  const finder = new StopFinder(stops);
  const steps: string[][] = [];
  for (const segment of piecesOf(texts)) {
    const { segments, stopped } = finder.push(segment);
    steps.push(segments.map(({ text }) => text));
    if (stopped) return { steps, stopped, end: [] };
  }
  return { steps, stopped: false, end: finder.flush().map(({ text }) => text) };
}

/** The same by comparing every stop sequence with every end of the text. */
function findNaively(stops: readonly string[], texts: readonly string[]): ReturnType<typeof find> {
  const steps: string[][] = [];
  let held: string[] = [];
  for (const text of texts) {
    const before = held.join("");
    held.push(text);
    for (let end = 1; end <= text.length; end++) {
      const whole = before + text.slice(0, end);
      const found = stops.filter((stop) => whole.endsWith(stop)).map((stop) => whole.length - stop.length);
      if (found.length === 0) continue;
      steps.push(cut(held, Math.min(...found)));
      return { steps, stopped: true, end: [] };
    }
    const whole = held.join("");
    const partials = stops.flatMap((stop) =>
      Array.from({ length: stop.length - 1 }, (_, index) => stop.slice(0, index + 1)).filter((beginning) =>
        whole.endsWith(beginning),
      ),
    );
    const passed = endingBefore(held, whole.length - Math.max(0, ...partials.map(({ length }) => length)));
    steps.push(passed);
    held = held.slice(passed.length);
  }
  return { steps, stopped: false, end: held };
}

/** The texts that end within the first `length` units. */
function endingBefore(texts: readonly string[], length: number): string[] {
  const ends = texts.map((_, index) => texts.slice(0, index + 1).join("").length);
  return texts.filter((_, index) => (ends[index] ?? 0) <= length);
}

/** The first `length` units of the texts, the last text cut. */
function cut(texts: readonly string[], length: number): string[] {
  const taken = endingBefore(texts, length);
  const left = length - taken.join("").length;
  return left === 0 ? taken : [...taken, texts[taken.length]?.slice(0, left) ?? ""];
}

const letters = (options: fc.StringConstraints) => fc.string({ ...options, unit: fc.constantFrom("a", "b") });

test("finds, holds and passes on the same segments as a naive search", () => {
  const stops = fc.array(letters({ minLength: 1, maxLength: 12 }), { minLength: 1, maxLength: 4 });
  const texts = fc.array(letters({ maxLength: 5 }), { maxLength: 60 });
  fc.assert(
    fc.property(stops, texts, (stop, text) => {
      assert.deepEqual(find(stop, text), findNaively(stop, text));
    }),
    { numRuns: share(3000) },
  );
});

test("finds sequences that are longer than the first table and repeat themselves", () => {
  const part = letters({ minLength: 1, maxLength: 4 });
  const long = fc
    .tuple(part, fc.integer({ min: 5, max: 40 }), part)
    .map(([a, count, b]) => a.repeat(count) + b);
  fc.assert(
    fc.property(long, letters({ maxLength: 30 }), fc.integer({ min: 1, max: 7 }), (stop, noise, size) => {
      const text = noise + stop.slice(0, -1) + stop + noise;
      const texts = text.match(new RegExp(`.{1,${size}}`, "g")) ?? [];
      assert.deepEqual(find([stop], texts), findNaively([stop], texts));
    }),
    { numRuns: share(500) },
  );
});

test("of stop sequences that end together the one that began first ends the text", () => {
  assert.deepEqual(find(["c", "bc", "abc"], ["xabc"]), { steps: [["x"]], stopped: true, end: [] });
});

test("the first stop sequence to be complete ends the text, even if another one began before it", () => {
  assert.deepEqual(find(["abcdef", "cd"], ["abc", "def"]), {
    steps: [[], ["ab"]],
    stopped: true,
    end: [],
  });
});

test("a matcher finds each occurrence and begins anew after it", () => {
  const matcher = new SequenceMatcher("aba");
  const found = [..."ababaaba"].map((letter) => matcher.push(letter.charCodeAt(0)));
  assert.deepEqual(found, [false, false, true, false, false, false, false, true]);
});

const fourStops = (length: number) => ["b", "c", "d", "e"].map((end) => "a".repeat(length - 1) + end);

test("four long stop sequences against a repeating text take linear time", () =>
  assertLinear(isThorough ? 1_000_000 : 250_000, (length) => {
    const finder = new StopFinder(fourStops(length));
    let passed = 0;
    // Every second segment breaks the match off at its longest, so that everything that is held
    // goes on.
    for (let round = 0; round < 2; round++) {
      for (let made = 0; made < 1.5 * length; made++) {
        passed += finder.push({ text: "a", tokens: 1, logprobs: [] }).segments.length;
      }
      passed += finder.push({ text: "x", tokens: 1, logprobs: [] }).segments.length;
    }
    assert.equal(passed, 2 * (1.5 * length + 1));
  }));

test("a stop sequence of megabytes costs nothing before the text arrives", () => {
  const find = (stops: readonly string[]) => () => {
    for (let made = 0; made < 10_000; made++)
      new StopFinder(stops).push({ text: "ax", tokens: 1, logprobs: [] });
  };
  return assertAtMost(10, find(fourStops(1_000_001)), find(fourStops(1000)));
});

test("half a closing tag that thinking was closed on by force is no part of a later tag", () => {
  const filter = new ThinkingFilter(["<think>", "</think>"], true);
  for (const text of ["Hm", "</thi"]) filter.push({ text, tokens: 1, logprobs: [] });
  filter.close(0);
  const passed = ["<think>", "nk>no", "</think>", "yes"].flatMap((text) =>
    filter.push({ text, tokens: 1, logprobs: [] }),
  );
  assert.deepEqual(
    passed.map(({ text }) => text),
    ["yes"],
  );
});

test("thinking that never closes takes linear time, however long its closing tag is", () =>
  assertLinear(isThorough ? 200_000 : 80_000, (length) => {
    const tags: ThinkTags = ["<think>", `${"a".repeat(length / 2)}</think>`];
    const filter = new ThinkingFilter(tags, true);
    for (let made = 1; made <= length; made++) {
      assert.equal(filter.push({ text: "a", tokens: 1, logprobs: [] }).length, 0);
      assert.equal(filter.tokens, made);
    }
  }));
