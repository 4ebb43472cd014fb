/** The thread of a tokenizer: loads it, and counts one prompt after the other. */
import type { MessagePort } from "node:worker_threads";
import type { Message } from "../../chat/engine.ts";
import { messageOf, OperatorError } from "../../errors.ts";
import type { TokenizerFiles } from "../../model-files/tokenizer-files.ts";
import { LoadedTokenizer, type TemplateFields, type TokenizedPrompt } from "./loaded-tokenizer.ts";

export interface CountCall {
  messages: readonly Message[];
  fields: TemplateFields;
}

/** The first reply is sent when the tokenizer is loaded. */
export type TokenizerReply =
  | { kind: "loaded" }
  | { kind: "refused"; message: string }
  | { kind: "counted"; prompt: TokenizedPrompt | null }
  | { kind: "failed"; message: string };

export function serve(port: MessagePort, files: TokenizerFiles): void {
  const reply = (message: TokenizerReply) => port.postMessage(message);
  try {
    const tokenizer = new LoadedTokenizer(files);
    port.on("message", ({ messages, fields }: CountCall) => {
      try {
        reply({ kind: "counted", prompt: tokenizer.count(messages, fields) });
      } catch (error) {
        reply({ kind: "failed", message: messageOf(error) });
      }
    });
    reply({ kind: "loaded" });
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    reply({ kind: "refused", message: error.message });
  }
}
