/** The twelve things that `npm run clients` tries, with the answers of the model's server. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Call } from "../../test/fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../../test/fixtures/upstream-events.ts";

/** Work of a client program, which prints one line of JSON for it. */
export interface Job {
  /** Name of the thing. The prompt is this name, a space, and the number of the request. */
  name: string;
  url: string;
  key: string;
  model: string;
  stream: boolean;
  /** Number of requests at the same time. */
  times: number;
  /** The client closes the stream after so many pieces of text. 0: it does not. */
  leave_after: number;
}

/** What a client gave to its user for one request. */
export interface Answer {
  text?: string;
  prompt_tokens?: number;
  completion_tokens?: number;
  models?: string[];
  /** All that an error says: its class, status, code and message. */
  error?: string;
}

/** Line of Inkwell's log about a request. */
export interface LogLine {
  account: string;
  /** Unix time of its end, in milliseconds. */
  time: number;
  durationMs: number;
  status?: number;
  code?: string;
  ending?: string;
  promptTokens?: number;
  completionTokens?: number;
  credits?: number;
}

interface Result {
  answers: readonly Answer[];
  /** Lines of the account of this thing, in the order of their ends. */
  lines: readonly LogLine[];
  /** Credits that its account has lost. */
  spent: number;
}

export interface Thing {
  name: string;
  /** The service's plan for the account. */
  plan: "starter" | "empty" | "single";
  jobs: readonly Partial<Job>[];
  /** The model's server. `number`: how many requests for this thing came before. */
  play?(call: Call, number: number, lines: () => readonly LogLine[]): Promise<void>;
  /** The path to the service hands over five bytes at a time. */
  isSplit?: boolean;
  /** Default: `big`. `narrow` runs one request at a time. */
  model?: string;
  /** Returns what is wrong, or null. */
  check(result: Result): string | null;
}

/** Prompt tokens of every request. */
const promptTokens = 12;
const sentence = ["Ink", "well", " an", "swers", "."];
const emoji = ["Grüße ", "👩‍🚀", "🇩🇪", " 日本", "語 ", "𝒜", " naïve", " ✅"];
const story = Array.from({ length: 2000 }, (_, n) => `word${n} `);
const queueMs = 20_000;

const say = (call: Call, tokens: readonly string[]) =>
  call.stream(first, ...tokens.map(text), finish(), usage(promptTokens, tokens.length), done);

const refuseWith = (call: Call, error: object) => call.answer(400, JSON.stringify({ error }));

const isText = (tokens: readonly string[], answers: readonly Answer[]) => {
  const wrong = answers.find(({ text }) => text !== tokens.join(""));
  return wrong === undefined ? null : `got ${JSON.stringify(wrong).slice(0, 300)}`;
};

/** Each error must have all of these words. */
const hasWords = (words: readonly (string | RegExp)[], answers: readonly Answer[]) => {
  for (const { error = "no error" } of answers)
    for (const word of words)
      if (error.search(word) < 0) return `no ${word} in: ${JSON.stringify(error.slice(0, 400))}`;
  return null;
};

const statuses = (lines: readonly LogLine[]) => lines.map(({ status }) => status).join(", ");

export const things: readonly Thing[] = [
  {
    name: "stream",
    plan: "starter",
    jobs: [{}],
    play: (call) => say(call, sentence),
    check: ({ answers }) => isText(sentence, answers),
  },
  {
    name: "usage",
    plan: "starter",
    jobs: [{ stream: true }, { stream: false }],
    play: (call) => say(call, sentence),
    check({ answers }) {
      const wrong = answers.findIndex(
        (answer) => answer.prompt_tokens !== promptTokens || answer.completion_tokens !== sentence.length,
      );
      if (wrong < 0) return null;
      return `${wrong === 0 ? "stream" : "whole"}: ${JSON.stringify(answers[wrong]).slice(0, 300)}`;
    },
  },
  {
    name: "abort",
    plan: "starter",
    jobs: [{ leave_after: 5 }],
    async play(call) {
      await call.send(first);
      for (const token of story) {
        if (call.isClosed) return;
        await call.send(text(token));
        await sleep(10);
      }
      await call.stream(finish(), usage(promptTokens, story.length), done);
    },
    check({ answers, lines: [line, ...others], spent }) {
      if (line === undefined || others.length > 0) return `${others.length} requests more than one`;
      const { ending, completionTokens = 0, promptTokens = 0 } = line;
      const isRight = ending === "client_gone" && completionTokens >= 5 && completionTokens < story.length;
      if (!isRight || spent !== promptTokens + completionTokens)
        return `${ending}, ${promptTokens} and ${completionTokens} tokens, ${spent} credits`;
      return answers[0]?.error ?? null;
    },
  },
  {
    name: "error",
    plan: "starter",
    jobs: [{ stream: false }],
    async play(call) {
      const message = "temperature must be between 0 and 1";
      refuseWith(call, { message, type: "invalid_request_error", param: "temperature", code: null });
    },
    check: ({ answers }) => hasWords(["invalid_value", "rejected the request"], answers),
  },
  {
    // Of two requests of an account that may run one, the second is refused while the first runs.
    name: "retry",
    plan: "single",
    jobs: [{ times: 2 }],
    async play(call, _, lines) {
      for (let waits = 0; waits < 200 && !lines().some(({ status }) => status === 429); waits += 1)
        await sleep(50);
      await say(call, sentence);
    },
    check({ answers, lines }) {
      const refused = lines.find(({ status }) => status === 429);
      if (refused === undefined) return `no 429 but ${statuses(lines)}`;
      const problem = isText(sentence, answers);
      if (problem !== null) return problem;
      const last = lines.findLast(({ status }) => status === 200);
      const waitedMs = (last?.time ?? 0) - (last?.durationMs ?? 0) - refused.time;
      return waitedMs >= 950 ? null : `retried after ${waitedMs} ms, not the second of retry-after`;
    },
  },
  {
    name: "full context",
    plan: "starter",
    jobs: [{}],
    async play(call) {
      const message = "This model's maximum context length is 4096 tokens. Your messages have 9000 tokens.";
      const code = "context_length_exceeded";
      refuseWith(call, { message, type: "invalid_request_error", param: "messages", code });
    },
    check: ({ answers }) =>
      hasWords([/context_length_exceeded|Context\w+Error/, "maximum context length"], answers),
  },
  {
    name: "empty balance",
    plan: "empty",
    jobs: [{}],
    check: ({ answers, lines }) =>
      statuses(lines) === "402" ? hasWords(["balance cannot pay"], answers) : `got ${statuses(lines)}`,
  },
  {
    // The model has one slot. The first answer pauses, and the second one waits in the queue.
    name: "queue",
    plan: "starter",
    model: "narrow",
    jobs: [{ times: 2 }],
    async play(call, number) {
      if (number > 0) return say(call, sentence);
      const [start = "", ...rest] = sentence;
      await call.send(first, text(start));
      await sleep(queueMs);
      await call.stream(...rest.map(text), finish(), usage(promptTokens, sentence.length), done);
    },
    check({ answers, lines }) {
      // A program that starts for each request is a little late. The first comment comes after 15 s.
      const waited = lines.filter(({ durationMs }) => durationMs >= queueMs - 4000);
      return waited.length === 2 && lines.length === 2
        ? isText(sentence, answers)
        : `${lines.length} requests, ${waited.length} of them with a wait: ${JSON.stringify(answers)}`;
    },
  },
  {
    name: "parallel",
    plan: "starter",
    jobs: [{ times: 10 }],
    play: (call) => say(call, [promptOf(call)]),
    check({ answers }) {
      const texts = answers.map((answer) => answer.text ?? answer.error).join(", ");
      const expected = answers.map((_, n) => `parallel ${n}`).join(", ");
      return texts === expected && answers.length === 10 ? null : `got ${texts.slice(0, 300)}`;
    },
  },
  {
    name: "emoji",
    plan: "starter",
    jobs: [{}],
    isSplit: true,
    play: (call) => say(call, emoji),
    check: ({ answers }) => isText(emoji, answers),
  },
  {
    name: "long answer",
    plan: "starter",
    jobs: [{}],
    play: (call) => say(call, story),
    check: ({ answers }) => isText(story, answers),
  },
  {
    name: "models",
    plan: "starter",
    jobs: [{}],
    check({ answers: [answer] }) {
      return answer?.models?.includes("big") === true ? null : `got ${JSON.stringify(answer).slice(0, 300)}`;
    },
  },
];

/** The last message of a request to the model's server. */
export function promptOf({ body }: Call): string {
  const { messages } = body;
  const last: unknown = Array.isArray(messages) ? messages.at(-1)?.content : undefined;
  return String(last);
}
