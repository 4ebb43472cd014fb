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

/** The result of one request, as a client gives it to its user. */
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
  ending?: string;
  promptTokens?: number;
  completionTokens?: number;
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
  /** Default: one streamed request. */
  jobs?: readonly Partial<Job>[];
  /** The service's plan for the account. Default: `starter`. */
  plan?: "empty" | "single";
  /** The path to the service hands over five bytes at a time. */
  isSplit?: boolean;
  /**
   * The model's server. `number`: how many requests for this thing came before. Default: it sends
   * a sentence.
   */
  play?(call: Call, number: number, lines: () => readonly LogLine[]): Promise<void>;
  /** Returns what is wrong, or null. Default: each answer must be the sentence. */
  check?(result: Result): string | null;
}

/** Prompt tokens of every request. */
const promptTokens = 12;
const sentence = ["Ink", "well", " an", "swers", "."];
const emoji = ["Grüße ", "👩‍🚀", "🇩🇪", " 日本", "語 ", "𝒜", " naïve", " ✅"];
const story = Array.from({ length: 2000 }, (_, n) => `word${n} `);
const queueMs = 20_000;

const show = (value: unknown) => JSON.stringify(value).slice(0, 400);

export const say = (call: Call, tokens: readonly string[] = sentence) =>
  call.stream(first, ...tokens.map(text), finish(), usage(promptTokens, tokens.length), done);

async function refuseWith(call: Call, message: string, param: string, code: string | null): Promise<void> {
  call.answer(400, JSON.stringify({ error: { message, type: "invalid_request_error", param, code } }));
}

export function isText(answers: readonly Answer[], tokens: readonly string[] = sentence): string | null {
  const wrong = answers.find((answer) => answer.text !== tokens.join(""));
  return wrong === undefined ? null : `got ${show(wrong)}`;
}

/** Each error must have all of these words. */
function hasWords(answers: readonly Answer[], ...words: (string | RegExp)[]): string | null {
  for (const { error = "no error" } of answers)
    for (const word of words) if (error.search(word) < 0) return `no ${word} in: ${show(error)}`;
  return null;
}

const statuses = (lines: readonly LogLine[]) => lines.map(({ status }) => status).join(", ");

export const things: readonly Thing[] = [
  { name: "stream" },
  {
    name: "usage",
    jobs: [{ stream: true }, { stream: false }],
    check({ answers }) {
      const isRight = (answer: Answer) =>
        answer.prompt_tokens === promptTokens && answer.completion_tokens === sentence.length;
      return answers.every(isRight) ? null : `stream and whole: ${show(answers)}`;
    },
  },
  {
    name: "abort",
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
    check({ answers, lines, spent }) {
      const [{ ending = "", completionTokens = 0, promptTokens = 0 } = {}] = lines;
      const isCut = ending === "client_gone" && completionTokens >= 5 && completionTokens < story.length;
      const isRight = isCut && lines.length === 1 && spent === promptTokens + completionTokens;
      return isRight ? (answers[0]?.error ?? null) : `${spent} credits for ${show(lines)}`;
    },
  },
  {
    name: "error",
    jobs: [{ stream: false }],
    play: (call) => refuseWith(call, "temperature must be between 0 and 1", "temperature", null),
    check: ({ answers }) => hasWords(answers, "invalid_value", "rejected the request"),
  },
  {
    // Of two requests of an account that may run one, the second is refused while the first runs.
    name: "retry",
    plan: "single",
    jobs: [{ times: 2 }],
    async play(call, _, lines) {
      for (let waits = 0; waits < 200 && !lines().some(({ status }) => status === 429); waits += 1)
        await sleep(50);
      await say(call);
    },
    check({ answers, lines }) {
      const refused = lines.find(({ status }) => status === 429);
      const last = lines.findLast(({ status }) => status === 200);
      if (refused === undefined || last === undefined) return `no 429 and 200, but ${statuses(lines)}`;
      const waitedMs = last.time - last.durationMs - refused.time;
      const isEarly = waitedMs < 950;
      return (
        isText(answers) ?? (isEarly ? `repeated after ${waitedMs} ms, not the second of retry-after` : null)
      );
    },
  },
  {
    name: "full context",
    play: (call) =>
      refuseWith(
        call,
        "This model's maximum context length is 4096 tokens. Your messages have 9000 tokens.",
        "messages",
        "context_length_exceeded",
      ),
    check: ({ answers }) =>
      hasWords(answers, /context_length_exceeded|Context\w+Error/, "maximum context length"),
  },
  {
    name: "empty balance",
    plan: "empty",
    check: ({ answers, lines }) =>
      statuses(lines) === "402" ? hasWords(answers, "balance cannot pay") : `got ${statuses(lines)}`,
  },
  {
    // The model has one slot. The first answer pauses, and the second one waits in the queue.
    name: "queue",
    jobs: [{ times: 2, model: "narrow" }],
    async play(call, number) {
      if (number > 0) return say(call);
      const [start = "", ...rest] = sentence;
      await call.send(first, text(start));
      await sleep(queueMs);
      await call.stream(...rest.map(text), finish(), usage(promptTokens, sentence.length), done);
    },
    check({ answers, lines }) {
      // A program that starts for each request is a little late. A comment comes after 15 s.
      const waits = lines.filter(({ durationMs }) => durationMs >= queueMs - 4000);
      return waits.length === 2 && lines.length === 2 ? isText(answers) : `no two waits: ${show(lines)}`;
    },
  },
  {
    name: "parallel",
    jobs: [{ times: 10 }],
    play: (call) => say(call, [promptOf(call)]),
    check({ answers }) {
      const isRight = answers.length === 10 && answers.every((answer, n) => answer.text === `parallel ${n}`);
      return isRight ? null : `got ${show(answers)}`;
    },
  },
  {
    name: "emoji",
    isSplit: true,
    play: (call) => say(call, emoji),
    check: ({ answers }) => isText(answers, emoji),
  },
  {
    name: "long answer",
    play: (call) => say(call, story),
    check: ({ answers }) => isText(answers, story),
  },
  {
    name: "models",
    check: ({ answers: [answer] }) => (answer?.models?.includes("big") ? null : `got ${show(answer)}`),
  },
];

/** The last message of a request to the model's server. */
export function promptOf({ body }: Call): string {
  const { messages } = body;
  const last: unknown = Array.isArray(messages) ? messages.at(-1)?.content : undefined;
  return String(last);
}
