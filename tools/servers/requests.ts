/** The requests that each model server gets through Inkwell, and what the caller must see. */
import type { Answer } from "./client.ts";

type Fields = Record<string, unknown>;

/** Answers of earlier requests, by name. */
export type Earlier = (name: string) => Answer;

export interface Case {
  group: string;
  name: string;
  /** Made when its turn comes: some requests depend on earlier answers. */
  body(earlier: Earlier): Fields;
  /** The client leaves before the answer begins, or after some events of it. */
  leaves?: "before the answer" | "in mid-answer";
  /** Returns what is wrong with the answer, or null. */
  check?(answer: Answer, earlier: Earlier): string | null;
}

const say = (...contents: string[]) => contents.map((content) => ({ role: "user", content }));
const question = say("What is ink?");
const story = say("Tell me a very long story about a river and its ships.");
const greedy = { messages: question, temperature: 0, max_tokens: 40 };
const words = (count: number) => say(`Repeat this:${" ink".repeat(count)}`);

const status =
  (...expected: number[]) =>
  ({ status: got, error }: Answer) =>
    expected.includes(got)
      ? null
      : `the status is ${got}, not ${expected.join(" or ")}: ${JSON.stringify(error)}`;

/** An answer of so many tokens, which ended by length or stopped before. */
const ofTokens = (tokens: number) => (answer: Answer) => {
  const { usage, finishReason } = answer;
  if (answer.status !== 200) return status(200)(answer);
  const made = usage?.completion_tokens ?? 0;
  const isRight = finishReason === "length" ? made === tokens : made <= tokens;
  return isRight ? null : `${made} tokens ended by ${finishReason}, not ${tokens}`;
};

const refusal = (code: string) => (answer: Answer) =>
  answer.error?.code === code ? null : `${answer.status} ${JSON.stringify(answer.error)}, not ${code}`;

const alternatives = (count: number) => (answer: Answer) => {
  const wrong = answer.alternatives.filter((each) => each !== count);
  if (answer.status === 200 && answer.alternatives.length > 0 && wrong.length === 0) return null;
  return `${answer.status}, ${answer.alternatives.length} tokens, some with ${wrong[0]} alternatives, not ${count}`;
};

const sameAs = (name: string) => (answer: Answer, earlier: Earlier) =>
  answer.status === 200 && answer.text === earlier(name).text
    ? null
    : `${answer.status}: ${JSON.stringify(answer.text.slice(0, 60))} differs from "${name}"`;

/** The greedy answer up to a stop sequence. */
const stopsAt = (stop: (text: string) => string) => (answer: Answer, earlier: Earlier) => {
  const whole = earlier("temperature 0").text;
  const expected = whole.slice(0, whole.indexOf(stop(whole)));
  if (answer.text === expected && answer.finishReason === "stop") return null;
  return `${answer.finishReason}: ${JSON.stringify(answer.text)}, not ${JSON.stringify(expected)}`;
};
const word = (text: string) => text.split(" ")[4] ?? "";
/** From the middle of a word to the middle of the next one. */
const acrossWords = (text: string) => {
  const [, one = ""] = /^(?:\S+ ){2}(\S+ \S+)/.exec(text) ?? [];
  return one.slice(1, -1);
};

/** Number of words that make a prompt of so many tokens, by the prompt of 400 words. */
function wordsFor(tokens: number, earlier: Earlier): number {
  const { usage } = earlier("a prompt of 400 words");
  return Math.floor(tokens - ((usage?.prompt_tokens ?? 440) - 400));
}

/** `window`: tokens. `isCounted`: Inkwell knows the tokens of a prompt beforehand. */
export function casesFor(window: number, isCounted: boolean): Case[] {
  const cases: Case[] = [];
  const add = (group: string, name: string, body: Case["body"] | Fields, more: Partial<Case> = {}) =>
    cases.push({
      group,
      name,
      body: typeof body === "function" ? (body as Case["body"]) : () => body,
      check: status(200),
      ...more,
    });
  const plain = { messages: question, max_tokens: 24 };
  const withUsage = { stream: true, stream_options: { include_usage: true } };

  add("streams", "a stream without usage", { ...plain, stream: true });
  add("streams", "a stream with usage", { ...plain, ...withUsage }, { check: ofTokens(24) });
  add("streams", "a whole answer", plain, { check: ofTokens(24) });
  add("limits", "max_tokens 1", { ...plain, max_tokens: 1 }, { check: ofTokens(1) });
  add("limits", "max_tokens 7", { ...plain, max_tokens: 7 }, { check: ofTokens(7) });
  add("limits", "no max_tokens", { messages: say("Say hello."), ...withUsage });
  add("limits", "max_tokens beyond the window", { messages: say("Say yes."), max_tokens: 10 * window });

  add("sampling", "temperature 0", greedy);
  add("sampling", "temperature 0 again", greedy, { check: sameAs("temperature 0") });
  add("sampling", "top_k 1", { ...greedy, temperature: 1, top_k: 1 }, { check: sameAs("temperature 0") });
  const seeded = { ...greedy, temperature: 1, seed: 7 };
  add("sampling", "a seed", seeded);
  add("sampling", "the seed again", seeded, { check: sameAs("a seed") });
  add("sampling", "the largest seed", { ...seeded, seed: Number.MAX_SAFE_INTEGER });
  add("sampling", "a negative seed", { ...seeded, seed: -5 });
  add("sampling", "penalties", { ...greedy, presence_penalty: 1.5, frequency_penalty: 1.5 });
  add("sampling", "top_p 0", { ...greedy, temperature: 1, top_p: 0 });

  const stopping = (...stops: ((text: string) => string)[]) => ({
    body: (earlier: Earlier) => {
      const { text } = earlier("temperature 0");
      return { ...greedy, stop: stops.map((each) => each(text)) };
    },
    check: stopsAt(stops.at(-1) ?? word),
  });
  const never = (n: number) => () => `never ${n}`;
  const one = stopping(word);
  add("stop", "one stop sequence", one.body, one);
  const four = stopping(never(1), never(2), never(3), word);
  add("stop", "four stop sequences", four.body, four);
  const across = stopping(acrossWords);
  add("stop", "a stop sequence across tokens", across.body, across);
  add("stop", "a streamed stop", (earlier) => ({ ...across.body(earlier), ...withUsage }), across);
  const begins = (text: string) => `${text.slice(-6)} and never more`;
  add("stop", "the begin of a stop sequence at the end", stopping(begins).body, {
    check: sameAs("temperature 0"),
  });

  for (const count of [0, 5, 20])
    add(
      "logprobs",
      `${count} alternatives`,
      { ...greedy, logprobs: true, top_logprobs: count },
      { check: alternatives(count) },
    );
  add(
    "logprobs",
    "streamed alternatives",
    { ...greedy, logprobs: true, top_logprobs: 2, ...withUsage },
    { check: alternatives(2) },
  );

  add("prompts", "a prompt of 400 words", { messages: words(400), max_tokens: 4 });
  add("prompts", "half the window", { messages: words(window / 2), max_tokens: 4 });
  const near = { check: isCounted ? status(200) : status(200, 400) };
  add(
    "prompts",
    "near the window",
    (earlier) => ({ messages: words(wordsFor(window - 8, earlier)), max_tokens: 4 }),
    near,
  );
  add(
    "prompts",
    "as long as the window",
    (earlier) => ({ messages: words(wordsFor(window, earlier)), max_tokens: 4 }),
    { check: refusal("context_length_exceeded") },
  );
  add(
    "prompts",
    "over the window",
    { messages: words(2 * window), max_tokens: 4 },
    { check: refusal("context_length_exceeded") },
  );

  const turns = Array.from({ length: 40 }, (_, n) => ({
    role: n % 2 === 0 ? "user" : "assistant",
    content: `turn ${n}`,
  }));
  add("messages", "emoji and CJK", { ...greedy, messages: say("Repeat: 🦑🖋️ 墨水是什么？ インク") });
  add("messages", "forty messages", { ...greedy, messages: [...turns, ...question] });
  add("messages", "a system message alone", {
    ...greedy,
    messages: [{ role: "system", content: "Be short." }],
  });
  add("messages", "two user messages in a row", { ...greedy, messages: say("a", "b") });
  add("messages", "a developer message", {
    ...greedy,
    messages: [{ role: "developer", content: "Be short." }, ...question],
  });
  add("messages", "an empty message", { ...greedy, messages: say("") });
  add("messages", "reasoning_effort", { ...greedy, reasoning_effort: "low" });
  add("messages", "an unknown field", { ...greedy, unknown_field: { a: 1 } });
  add("wrong values", "a penalty of 5", { ...plain, presence_penalty: 5 }, { check: status(200, 400) });
  add(
    "wrong values",
    "a penalty of -100",
    { ...plain, frequency_penalty: -100 },
    { check: status(200, 400) },
  );
  add(
    "wrong values",
    "50 alternatives",
    { ...plain, logprobs: true, top_logprobs: 50 },
    { check: refusal("invalid_value") },
  );
  add("wrong values", "a large top_k", { ...plain, top_k: 2_000_000_000 }, { check: status(200, 400) });
  add(
    "wrong values",
    "alternatives without logprobs",
    { ...plain, top_logprobs: 3 },
    { check: status(200, 400) },
  );

  const endless = { messages: story, max_tokens: 600 };
  add("aborts", "left before the answer", endless, { leaves: "before the answer", check: status(0) });
  add(
    "aborts",
    "left a stream before it",
    { ...endless, stream: true },
    { leaves: "before the answer", check: status(0) },
  );
  add(
    "aborts",
    "left a stream in its middle",
    { ...endless, stream: true },
    { leaves: "in mid-answer", check: status(0) },
  );
  add("aborts", "left a whole answer in its middle", endless, { leaves: "in mid-answer", check: status(0) });
  return cases;
}

/** Requests that run at the same time. */
export const manyAtOnce: readonly Case[] = Array.from({ length: 24 }, (_, n) => ({
  group: "together",
  name: `request ${n} of those at once`,
  body: () => ({
    messages: say(`Count to ${n + 10}.`),
    max_tokens: 20 + n,
    ...(n % 2 === 0 ? { stream: true } : {}),
  }),
  check: status(200),
}));
