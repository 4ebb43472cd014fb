/**
 * The requests of the small chat and of first steps, and what each turn cost.
 *
 * Nothing is stored: a conversation is in the memory of its page. A turn that is stopped or broken
 * off costs what was generated. Its cost is then looked up among the receipts.
 */
import { ApiError, apiPath, events, get } from "./api.ts";
import type { ChatCost, Page, Receipt } from "./types.ts";

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: readonly Message[];
  temperature?: number;
  max_tokens?: number;
}

export interface Turn {
  text: string;
  /** From the first chunk on. */
  id: string | null;
  /** Null until it is known. */
  costMicro: number | null;
  tokens: { prompt: number; completion: number } | null;
  /** A sentence that says why the answer ended, and what to do. Null if it is complete. */
  problem: string | null;
}

/** The parts that are read of a chunk of the public API. */
interface Chunk extends Partial<Pick<ChatCost, "usage" | "cost_micro">> {
  id?: string;
  choices?: { delta?: { content?: string | null }; finish_reason?: string | null }[];
  error?: { message?: string };
}

const emptyTurn: Turn = { text: "", id: null, costMicro: null, tokens: null, problem: null };
const receiptRetriesMs = [200, 500, 1000, 2000, 4000];

/**
 * Calls `onChange` with the turn so far. Returns it when it has ended, and never throws.
 * `key`: the secret of a key in the place of the session's.
 */
export async function ask(
  request: ChatRequest,
  signal: AbortSignal,
  onChange: (turn: Turn) => void,
  key?: string,
): Promise<Turn> {
  let turn = emptyTurn;
  const change = (fields: Partial<Turn>) => {
    turn = { ...turn, ...fields };
    onChange(turn);
  };
  try {
    const body = { ...request, stream: true };
    let isComplete = false;
    const headers = key === undefined ? {} : { "x-inkwell-key": key };
    for await (const data of events(apiPath("chat"), { body, signal, headers })) {
      if (data === "[DONE]") {
        isComplete = true;
        break;
      }
      const chunk: Chunk = JSON.parse(data);
      change(fieldsOf(chunk, turn));
    }
    if (!isComplete && turn.problem === null) change({ problem: brokenOff });
  } catch (error) {
    change({
      problem: signal.aborted
        ? "You stopped the answer. It costs what was generated."
        : sentenceOf(error, turn),
    });
  }
  if (turn.id !== null && turn.costMicro === null && key === undefined) change(await receiptOf(turn.id));
  return turn;
}

const brokenOff = "The answer broke off. It costs what was delivered. Send the message again.";

function fieldsOf({ id, choices, usage, cost_micro, error }: Chunk, turn: Turn): Partial<Turn> {
  const choice = choices?.[0];
  const text = choice?.delta?.content;
  const isCut = choice?.finish_reason === "length";
  return {
    ...(id === undefined ? {} : { id }),
    ...(text ? { text: turn.text + text } : {}),
    ...(usage ? { tokens: { prompt: usage.prompt_tokens, completion: usage.completion_tokens } } : {}),
    ...(cost_micro === undefined ? {} : { costMicro: cost_micro }),
    ...(isCut && {
      problem: "The answer reached its longest length, a spending cap, or the end of the credits.",
    }),
    ...(error === undefined ? {} : { problem: error.message ?? brokenOff }),
  };
}

/** Messages of the service say what is wrong; some codes have a remedy in the portal. */
const remedies: Readonly<Record<string, string>> = {
  credits_reserved: "Wait until other requests have finished, or use a smaller “Longest answer”.",
  rate_limit_exceeded: "Wait, then send the message again.",
  concurrency_limit_exceeded: "Wait until another request has finished, then send the message again.",
  context_length_exceeded: "Begin a new conversation, or shorten the message.",
  model_unavailable: "Choose another model, or try again in a minute.",
  shutting_down: "Try again in a minute.",
  account_suspended: "Ask the operator to activate the account.",
};

function sentenceOf(error: unknown, turn: Turn): string {
  if (!(error instanceof ApiError) || error.status === 0)
    return turn.id === null ? "No answer arrived. It may have cost credits. Send it again." : brokenOff;
  const remedy = remedies[error.code];
  return remedy === undefined ? error.message : `${error.message} ${remedy}`;
}

/** Finds what an aborted turn cost: its charge is written a moment after the abort. */
async function receiptOf(id: string): Promise<Partial<Turn>> {
  const request = id.replace(/^chatcmpl-/, "");
  for (const waitMs of receiptRetriesMs) {
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    try {
      const { data } = await get<Page<Receipt>>(apiPath("requests"), { limit: 100 });
      const found = data.find(({ request_id }) => request_id === request);
      if (found === undefined) continue;
      const tokens = { prompt: found.prompt_tokens, completion: found.completion_tokens };
      return { costMicro: found.cost_micro, tokens };
    } catch (error) {
      // The page says that the cost is not known yet, and where it will be.
      if (error instanceof ApiError && error.status === 401) return {};
    }
  }
  return {};
}
