/**
 * Normalises a conversation for chat templates, a little further at each step.
 *
 * Pure. Clients may send messages in any order. Many templates reject a second system message, two
 * answers in a row, or a conversation that starts with an answer. Every step keeps all texts and
 * their order, except system texts: they move to the front of the user's turn that they join.
 */
import type { Message, Role } from "../../chat/engine.ts";

export interface Turn {
  role: Role;
  /** Joined by a blank line when the turn is written. */
  texts: string[];
}

/**
 * Yields normal forms, from the conversation as it is to a single user turn. The first form that
 * the template accepts is used.
 */
export function* normalForms(messages: readonly Message[], knowsDeveloper: boolean): Generator<Turn[]> {
  const asSent = messages.map(({ role, content }): Turn => ({ role, texts: [content] }));
  if (knowsDeveloper) yield asSent;
  const system = asSent.map((turn): Turn => (turn.role === "developer" ? { ...turn, role: "system" } : turn));
  yield system;
  const merged = mergeNeighbours(
    mergeNeighbours(system).map(
      (turn, index): Turn => (turn.role === "system" && index > 0 ? { ...turn, role: "user" } : turn),
    ),
  );
  yield merged;
  const first = merged[0];
  const afterSystem = first?.role === "system" ? 1 : 0;
  const answered: Turn[] =
    merged[afterSystem]?.role === "assistant"
      ? merged.toSpliced(afterSystem, 0, { role: "user", texts: [""] })
      : merged;
  yield answered;
  yield mergeNeighbours(
    answered.map((turn): Turn => (turn.role === "system" ? { ...turn, role: "user" } : turn)),
  );
  yield [{ role: "user", texts: asSent.flatMap((turn) => turn.texts) }];
}

function mergeNeighbours(turns: readonly Turn[]): Turn[] {
  const merged: Turn[] = [];
  for (const turn of turns) {
    const last = merged.at(-1);
    if (last?.role === turn.role) last.texts.push(...turn.texts);
    else merged.push({ role: turn.role, texts: [...turn.texts] });
  }
  return merged;
}

/**
 * A conversation in the forms that chat templates accept. The first form is the conversation as it
 * was sent, with a developer's messages as a system's. Each next form is normalised further.
 *
 * A form is made when it is needed, because templates accept nearly every conversation as it is.
 */
export class ConversationForms {
  readonly #messages: readonly Message[];
  /** Characters of all messages in their first form. */
  readonly characters: number;
  /** Null until the first form is not enough. */
  #forms: Generator<Turn[], void> | null = null;
  #turns: readonly Turn[] = [];
  #current: readonly Message[] | null;

  constructor(messages: readonly Message[]) {
    this.#messages = messages;
    this.#current = messages.map(({ role, content }) => ({
      role: role === "developer" ? "system" : role,
      content,
    }));
    this.characters = messages.reduce((sum, { content }) => sum + content.length, 0);
  }

  /** Joins the texts on the first call, which takes milliseconds for megabytes. */
  get current(): readonly Message[] {
    this.#current ??= messagesOf(this.#turns);
    return this.#current;
  }

  /** Changes to the next form that differs. Returns false if no form is left. */
  normaliseFurther(): boolean {
    if (this.#forms === null) {
      this.#forms = normalForms(this.#messages, false);
      this.#turns = this.#forms.next().value ?? [];
    }
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
