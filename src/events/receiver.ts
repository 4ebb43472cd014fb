/** Receivers of events: a webhook, or a mail server. */
import type { ClaimedEvent } from "../store/events.ts";
import { visibleLine } from "../visible-text.ts";

export interface Answer {
  /** `skipped`: this event is not to be sent. `failed`: the receiver did not take it. */
  kind: "delivered" | "skipped" | "failed";
  /** Of HTTP or SMTP. Null: there was no answer. */
  status: number | null;
  /** The beginning of its body, or why there was none. */
  text: string;
  /** The pause that the receiver asks for. 0: none. */
  retryAfterMs: number;
}

const textCharactersMax = 500;

/** Returns the beginning of an answer as text that can be stored and shown. */
export function answerText(text: string): string {
  const beginning = visibleLine(text.slice(0, textCharactersMax)).slice(0, textCharactersMax);
  // No database stores half of a character that has two units.
  return beginning.replace(/\p{Cs}$/u, "");
}

export interface Receiver {
  /**
   * Sends an event, in bounded time. Never rejects. `signal`: this sender stops, and no longer
   * waits for an answer.
   */
  send(event: ClaimedEvent, signal: AbortSignal): Promise<Answer>;
  close(): Promise<void>;
}
