/**
 * A conversation in the forms that chat templates accept. The first form is the conversation as it
 * was sent, with a developer's messages as a system's. Each next form is normalised further
 * (text/message-normalisation.ts).
 *
 * A form is made when it is needed, because templates accept nearly every conversation as it is.
 */
import type { Message } from "../../chat/engine.ts";
import { normalForms, type Turn } from "../text/message-normalisation.ts";

export class ConversationForms {
  readonly #forms: Generator<Turn[], void>;
  /** Characters of all messages in their first form. */
  readonly characters: number;
  #turns: readonly Turn[];
  #current: readonly Message[] | null = null;

  constructor(messages: readonly Message[]) {
    this.#forms = normalForms(messages, false);
    this.#turns = this.#forms.next().value ?? [];
    this.characters = messages.reduce((sum, { content }) => sum + content.length, 0);
  }

  /** Joins the texts on the first call, which takes milliseconds for megabytes. */
  get current(): readonly Message[] {
    this.#current ??= messagesOf(this.#turns);
    return this.#current;
  }

  /** Changes to the next form that differs. Returns false if no form is left. */
  normaliseFurther(): boolean {
    // A loop over the generator itself would close it.
    for (let next = this.#forms.next(); next.done !== true; next = this.#forms.next()) {
      const turns = next.value;
      if (isSame(turns, this.#turns)) continue;
      this.#turns = turns;
      this.#current = null;
      return true;
    }
    return false;
  }
}

function messagesOf(turns: readonly Turn[]): readonly Message[] {
  return turns.map(({ role, texts }) => ({ role, content: texts.join("\n\n") }));
}

/**
 * Compares texts before they are joined. Equal texts are the same strings, so the comparison is
 * fast.
 */
function isSame(left: readonly Turn[], right: readonly Turn[]): boolean {
  return (
    left.length === right.length &&
    left.every(({ role, texts }, index) => {
      const other = right[index];
      if (role !== other?.role || texts.length !== other.texts.length) return false;
      return texts.every((text, at) => text === other.texts[at]);
    })
  );
}
