/**
 * A chat session on piped input or at a terminal: reads lines, hands them to the conversation, and
 * handles signals. Both kinds end with an exit code.
 */
import type { Interface } from "node:readline";
import type { Writable } from "node:stream";
import { type Chat, takeLine } from "./chat-commands.ts";
import { type StopSignal, signalExitCodes } from "./signals.ts";

interface ChatSession {
  onSignal(signal: StopSignal): void;
  /** Resolves with the exit code. */
  run(): Promise<number>;
}

/**
 * Every line is a turn. The first SIGINT during an answer stops the answer. Any other signal ends
 * the session.
 */
export function pipeSession(reader: Interface, chat: Chat): ChatSession {
  const { conversation } = chat;
  let interrupted = false;
  let endedBy: StopSignal | null = null;
  let refused = false;
  return {
    onSignal(signal) {
      const continues = signal === "SIGINT" && conversation.busy && !interrupted;
      interrupted = true;
      conversation.stop();
      if (continues) return;
      endedBy = signal;
      reader.close();
    },
    async run() {
      for await (const line of reader) {
        // The reader still yields lines that it read before the signal.
        if (endedBy !== null) break;
        const outcome = await takeLine(line, chat);
        if (outcome === "leave") break;
        if (outcome === "refused") refused = true;
      }
      reader.close();
      if (endedBy !== null) return signalExitCodes[endedBy];
      return refused || chat.turns.some((turn) => turn.finish_reason === null) ? 1 : 0;
    },
  };
}

/** Shows a prompt. Ctrl-C reaches the reader as a key, or the process as SIGINT. */
export function terminalSession(reader: Interface, chat: Chat, output: Writable): ChatSession {
  const { conversation } = chat;
  let isOpen = true;
  let interrupted = false;
  const onSignal = (signal: StopSignal) => {
    if (signal === "SIGTERM" || (!conversation.busy && interrupted)) {
      reader.close();
    } else if (conversation.busy) {
      conversation.stop();
    } else {
      interrupted = true;
      output.write("\n");
      conversation.remark("Ctrl-C again, or Ctrl-D, leaves.");
      reader.prompt();
    }
  };
  reader.on("SIGINT", () => onSignal("SIGINT"));
  reader.on("close", () => {
    // After Ctrl-D or Ctrl-C, the prompt of the shell belongs on a new line.
    if (isOpen) output.write("\n");
    isOpen = false;
    conversation.stop();
  });
  return {
    onSignal,
    async run() {
      conversation.remark(
        `Talking to ${conversation.model.id}. /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.`,
      );
      reader.prompt();
      for await (const line of reader) {
        // The reader still yields lines that were typed before Ctrl-D.
        if (!isOpen) break;
        interrupted = false;
        if ((await takeLine(line, chat)) === "leave") {
          isOpen = false;
          break;
        }
        if (isOpen) reader.prompt();
      }
      reader.close();
      return 0;
    },
  };
}
