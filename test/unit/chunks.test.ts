/** The chunks of a streamed answer, byte for byte. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ChunkEncoder } from "../../src/http/openai-format/chunk-encoder.ts";
import { anyCharacter } from "../fixtures/characters.ts";

const head = { id: "chatcmpl-1", created: 7, model: 'a "model"' };

test("a text becomes one line of JSON, whatever characters it has", () => {
  const texts = fc.oneof(
    fc.constantFrom(
      " word",
      '"',
      "\\",
      "\n",
      "\u0000",
      "\u007f",
      "\u0085",
      "\u2028",
      "\u2029",
      "\ud800",
      "\u{1f600}",
    ),
    fc.string({ unit: anyCharacter }),
  );
  fc.assert(
    fc.property(texts, fc.boolean(), (text, includeUsage) => {
      const chunks = new ChunkEncoder(head, { includeUsage, includeObfuscation: false });
      const chunk = chunks.text(text, undefined);
      const choices = [{ index: 0, delta: { content: text }, finish_reason: null }];
      const fields = { id: head.id, object: "chat.completion.chunk", created: 7, model: head.model, choices };
      const whole = JSON.stringify(includeUsage ? { ...fields, usage: null } : fields);
      const escaped = (mark: string) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;
      assert.equal(chunk, `data: ${whole.replace(/[\u0085\u2028\u2029]/g, escaped)}\n\n`);
    }),
  );
});
