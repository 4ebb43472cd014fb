/**
 * Finds the marks of roles and turns in a model's chat template by rendering a few conversations.
 *
 * Also finds marks that the template joins from parts (`'<|' + role + '|>'`). Does not find marks
 * that are ordinary words without a sign.
 */
import type { Message, Role } from "../../../chat/engine.ts";
import type { ChatTemplate, Part } from "./chat-template.ts";
import { TimeLimitExceeded } from "./time-limit.ts";

export interface RoleMarks {
  /** All text that the template writes around messages, including tokens of the vocabulary. */
  emitted: string;
  /** Marks that are plain text to the model: `[INST]`, `USER:`. The longest is first. */
  plain: readonly string[];
}

const conversations: readonly (readonly Role[])[] = [
  ["user"],
  ["user", "assistant", "user"],
  ["system", "user"],
  ["system", "user", "assistant", "user", "assistant", "user"],
  ["developer", "user"],
];

/** `<|user|>`, `<<SYS>>`, `</s>`, `<start_of_turn>`, `[INST]`, `[/INST]`. */
const bracketed = /<{1,2}\/?[|｜]?[^\s<>|｜]{1,40}[|｜]?>{1,2}|\[\/?[A-Z][A-Z_]{1,39}\]/g;
/** `USER:` or `### Response:` before a message. A label of more words is a sentence. */
const label = /(?:#{1,6} ?)?[\p{L}\p{N}_-]+(?: [\p{L}\p{N}_-]+)?:(?=\s*$)/u;
/** `### Instruction` on a line of its own. */
const heading = /#{2,6} ?[\p{L}\p{N}_-]{1,40}:?(?=\s*$)/u;

/** `markers` matches the special tokens in a template's text, if there are any. */
export function roleMarksOf(template: ChatTemplate, markers: RegExp | null): RoleMarks {
  const plain = new Set<string>();
  let emitted = "";
  for (const parts of renderings(template)) {
    for (const part of parts) {
      if (part.from === "content") continue;
      emitted += `${part.text}\n`;
      const runs = markers === null ? [part.text] : part.text.split(markers);
      for (const run of runs) for (const [mark] of run.matchAll(bracketed)) plain.add(mark);
      // Only the last run precedes a message.
      const last = runs.at(-1) ?? "";
      const found = label.exec(last)?.[0] ?? heading.exec(last)?.[0];
      if (found !== undefined) plain.add(found);
    }
  }
  return { emitted, plain: [...plain].toSorted((left, right) => right.length - left.length) };
}

function* renderings(template: ChatTemplate): Generator<Part[], void, undefined> {
  for (const roles of conversations) {
    const messages = roles.map((role): Message => ({ role, content: "text" }));
    for (const thinking of template.switchesThinking ? [undefined, true, false] : [undefined]) {
      try {
        yield template.render(messages, { thinking });
      } catch (cause) {
        // The template refuses such a conversation, so it has no marks for it.
        if (cause instanceof TimeLimitExceeded) throw cause;
      }
    }
  }
}
