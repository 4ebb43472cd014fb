/** A client of Inkwell's API, and what it sees of an answer. */

export interface Answer {
  /** Id of the request, or "" if the client left. */
  id: string;
  /** 0 if the client left. */
  status: number;
  error: { code: string; message: string; param: string | null } | null;
  text: string;
  finishReason: string | null;
  usage: { prompt_tokens: number; completion_tokens: number } | null;
  /** Number of alternatives of each token, if the answer has log-probabilities. */
  alternatives: number[];
}

interface Part {
  error?: Answer["error"];
  choices?: {
    message?: { content: string };
    delta?: { content?: string };
    finish_reason: string | null;
    logprobs?: { content: { top_logprobs: unknown[] }[] } | null;
  }[];
  usage?: Answer["usage"];
}

/** Adds an event, or a whole answer. */
function read({ error, choices, usage }: Part, answer: Answer): void {
  const [choice] = choices ?? [];
  answer.error = error ?? answer.error;
  answer.usage = usage ?? answer.usage;
  answer.text += choice?.message?.content ?? choice?.delta?.content ?? "";
  answer.finishReason = choice?.finish_reason ?? answer.finishReason;
  for (const token of choice?.logprobs?.content ?? []) answer.alternatives.push(token.top_logprobs.length);
}

/** Sends a chat request. The client leaves as soon as `isLeaving` is true. */
export async function chat(
  url: string,
  key: string,
  body: Readonly<Record<string, unknown>>,
  isLeaving: () => boolean = () => false,
): Promise<Answer> {
  const answer: Answer = {
    id: "",
    status: 0,
    error: null,
    text: "",
    finishReason: null,
    usage: null,
    alternatives: [],
  };
  const leaving = new AbortController();
  const look = setInterval(() => {
    if (isLeaving()) leaving.abort();
  }, 5);
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: leaving.signal,
    });
    const text = await response.text();
    answer.id = response.headers.get("x-request-id") ?? "";
    answer.status = response.status;
    const events = text.split("\n").filter((line) => line.startsWith("data: {"));
    const parts = events.length > 0 ? events.map((line) => line.slice("data: ".length)) : [text];
    for (const part of parts) read(JSON.parse(part), answer);
  } catch (error) {
    if (!leaving.signal.aborted) throw error;
  } finally {
    clearInterval(look);
  }
  return answer;
}

/** Returns a client of the API for operators. */
export function operatorOf(url: string, token: string) {
  return async (method: string, path: string, body?: unknown): Promise<Record<string, unknown>> => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  };
}
