/**
 * The fixed answers of the mock upstream. Each answer has a path of its own,
 * `/ID/v1/chat/completions` for the stream and `/ID/whole/v1/chat/completions` for the same answer
 * as one JSON object.
 */

export interface UpstreamAnswer {
  id: string;
  tokens: number;
  /**
   * Each event is sent by itself, in a turn of the event loop; otherwise all events are sent
   * together.
   */
  inPieces: boolean;
}

export const upstreamAnswers: readonly UpstreamAnswer[] = [
  { id: "short", tokens: 1, inPieces: false },
  { id: "burst", tokens: 64, inPieces: false },
  { id: "pieces", tokens: 64, inPieces: true },
];

export const wholePath = "/whole";

const created = 1_700_000_000;
/** All of one length, so that all events are. */
const words = [" ever", " many", " some", " well", " here", " with", " each", " long"];

function textOf({ tokens }: UpstreamAnswer): string[] {
  return Array.from({ length: tokens }, (_, n) => words[n % words.length] ?? "");
}

function usageOf({ tokens }: UpstreamAnswer) {
  return { prompt_tokens: 18, completion_tokens: tokens, total_tokens: 18 + tokens };
}

export function wholeOf(answer: UpstreamAnswer): string {
  const message = { role: "assistant", content: textOf(answer).join("") };
  const choices = [{ index: 0, message, logprobs: null, finish_reason: "length" }];
  const { id: model } = answer;
  const head = { id: "chatcmpl-0", object: "chat.completion", created, model };
  return JSON.stringify({ ...head, choices, usage: usageOf(answer) });
}

/** The events: the role, each token, the end, the usage. */
export function streamOf(answer: UpstreamAnswer): string[] {
  const head = { id: "chatcmpl-0", object: "chat.completion.chunk", created, model: answer.id };
  const event = (delta: object, finish_reason: string | null) =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, logprobs: null, finish_reason }] })}\n\n`;
  const first = event({ role: "assistant", content: "" }, null);
  const texts = textOf(answer).map((content) => event({ content }, null));
  const usage = `data: ${JSON.stringify({ ...head, choices: [], usage: usageOf(answer) })}\n\n`;
  return [first, ...texts, event({}, "length"), usage, "data: [DONE]\n\n"];
}
