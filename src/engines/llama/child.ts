/**
 * The engine's child process: loads the model, prepares prompts, decodes. Started by
 * process/engine-process.ts.
 *
 * Guarantees: ends when its parent ends, because the IPC channel closes. Survives Ctrl-C and the
 * closing of the terminal that it shares with its parent: the parent decides when running answers
 * end. Writes nothing to disk.
 */
import { messageOf, OperatorError } from "../../errors.ts";
import { Decoder } from "./decode/decoder.ts";
import { loadBackend } from "./decode/load.ts";
import { SavedStates } from "./decode/saved-states.ts";
import { PromptPlanner } from "./prompt/planner.ts";
import { type FromChild, isMessage, type LoadOptions, type ToChild } from "./protocol.ts";

function send(message: FromChild): void {
  // If the parent is gone, `disconnect` ends this process.
  process.send?.(message, undefined, undefined, () => {});
}

/** Resolves when the message has left, because loading may block this thread right afterwards. */
function sendAndWait(message: FromChild): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined) resolve();
    else process.send(message, undefined, undefined, () => resolve());
  });
}

function loadFailureOf(cause: unknown, modelPath: string): string {
  if (cause instanceof OperatorError) return cause.message;
  return `The model file ${modelPath} cannot be used: ${messageOf(cause)}.`;
}

/**
 * Ends the process without the native library's clean-up, which could wait for a running decode.
 */
function endNow(): void {
  process.kill(process.pid, "SIGKILL");
}

/** Drops the permissions that only loading needs (process/confinement.ts). */
function dropPermissions(): void {
  // Undefined on systems whose processes are not confined.
  for (const scope of ["child", "addon", "fs.read"]) process.permission?.drop(scope);
}

class Child {
  #planner: PromptPlanner | undefined;
  #decoder: Decoder | undefined;

  handle(message: ToChild): void {
    if (message.type === "load") {
      this.#load(message.options).catch((cause: unknown) => {
        send({ type: "refused", message: loadFailureOf(cause, message.options.modelPath) });
      });
    } else if (message.type === "prepare") void this.#prepare(message);
    else this.#decoder?.receive(message);
  }

  async #load(options: LoadOptions): Promise<void> {
    const log = (level: "info" | "warn" | "error", message: string) => send({ type: "log", level, message });
    const warn = (message: string) => log("warn", message);
    await sendAndWait({ type: "loading", phase: "weights" });
    const loaded = await loadBackend(options, log);
    await sendAndWait({ type: "loading", phase: "template" });
    this.#planner = new PromptPlanner({
      ...loaded,
      thinkTags: options.thinkTags,
      renderMs: options.renderMs,
      warn,
    });
    const { thinkTags, closingTokens } = this.#planner;
    const { backend, contextWindow, description, sizeBytes } = loaded;
    this.#decoder = new Decoder({
      ...loaded,
      thinkTags,
      closingTokens,
      parallel: options.parallel,
      states: new SavedStates({ backend, bytesMax: options.pausedBytesMax, warn }),
      report: (jobs, batches) => send({ type: "progress", jobs, batches }),
      placed: (id, sequence, tookMs) => send({ type: "placed", id, sequence, tookMs }),
    });
    dropPermissions();
    // A defect in the loop must not leave requests waiting: the process ends and is started again.
    this.#decoder.run().catch((cause: unknown) => {
      process.stderr.write(`${cause instanceof Error ? cause.stack : String(cause)}\n`, endNow);
    });
    send({ type: "loaded", model: { contextWindow, description, sizeBytes } });
  }

  async #prepare({ id, messages, reasoning }: Extract<ToChild, { type: "prepare" }>): Promise<void> {
    const before = process.threadCpuUsage();
    const workMs = (): number => {
      const { user, system } = process.threadCpuUsage(before);
      return (user + system) / 1000;
    };
    try {
      if (this.#planner === undefined) throw new Error("no model is loaded");
      const plan = await this.#planner.plan(messages, reasoning);
      send({ type: "prepared", id, ...plan, workMs: workMs() });
    } catch (cause) {
      send({ type: "prepareFailed", id, message: messageOf(cause), workMs: workMs() });
    }
  }
}

const child = new Child();
process.on("message", (message: unknown) => {
  if (isMessage<ToChild>(message)) child.handle(message);
});
process.on("disconnect", endNow);
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) process.on(signal, () => {});
send({ type: "up" });
