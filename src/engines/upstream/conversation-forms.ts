/**
 * A conversation in the forms that chat templates ask for: first as it was sent (a developer's messages as a system's, which
 * every server knows), then folded further and further, as the embedded engine does it (../folding.ts).
 *
 * Each form is made when it is asked for: nearly every conversation is taken as it is.
 */
import type { Message } from "../../generation/engine.ts";
import { foldings, type Turn } from "../folding.ts";

export class ConversationForms {
  readonly #foldings: Generator<Turn[]>;
  #current: readonly Message[];

  constructor(messages: readonly Message[]) {
    this.#foldings = foldings(messages, false);
    this.#current = this.#next() ?? messages;
  }

  get current(): readonly Message[] {
    return this.#current;
  }

  /** Goes on to the next form that differs; false where there is none. */
  fold(): boolean {
    for (let form = this.#next(); form !== null; form = this.#next()) {
      if (isSame(form, this.#current)) continue;
      this.#current = form;
      return true;
    }
    return false;
  }

  #next(): readonly Message[] | null {
    const { value, done } = this.#foldings.next();
    return done === true ? null : value.map(({ role, texts }) => ({ role, content: texts.join("\n\n") }));
  }
}

function isSame(left: readonly Message[], right: readonly Message[]): boolean {
  return (
    left.length === right.length &&
    left.every(({ role, content }, index) => {
      const other = right[index];
      return role === other?.role && content === other.content;
    })
  );
}
