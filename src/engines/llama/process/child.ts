/**
 * The engine's child process: loads the model, prepares prompts, decodes. Started by supervisor.ts only.
 *
 * Guarantees: it ends when its parent does, however that ends (the IPC channel closes); it outlives a Ctrl-C on the
 * terminal that it shares with its parent, and the end of that terminal. The parent decides when running answers are
 * cut off. Keeps nothing on disk.
 */
import { messageOf, OperatorError } from "../../../errors.ts";
import { loadBackend } from "../decode/backend.ts";
import { Decoder } from "../decode/decoder.ts";
import { SavedStates } from "../decode/saved-states.ts";
import { PromptPlanner } from "../prompt/planner.ts";
import { type FromChild, isToChild, type LoadOptions, type ToChild } from "../protocol.ts";
import { confineFurther } from "./confinement.ts";

function send(message: FromChild): void {
  // A parent that is gone needs no answer: `disconnect` ends this process.
  process.send?.(message, undefined, undefined, () => {});
}

/** Resolves when the parent has the message, which it would not get while this process loops. */
function sendAndWait(message: FromChild): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined) resolve();
    else process.send(message, undefined, undefined, () => resolve());
  });
}

function refusalOf(cause: unknown, modelPath: string): string {
  if (cause instanceof OperatorError) return cause.message;
  const why = messageOf(cause);
  return `The model file ${modelPath} cannot be used: ${why}.`;
}

/** At once, and without the native library's clean-up, which could wait for a decode that is under way. */
function endNow(): void {
  process.kill(process.pid, "SIGKILL");
}

class Child {
  #ready: { planner: PromptPlanner; decoder: Decoder } | undefined;

  handle(message: ToChild): void {
    switch (message.type) {
      case "load":
        this.#load(message.options).catch((cause: unknown) => {
          send({ type: "refused", message: refusalOf(cause, message.options.modelPath) });
        });
        return;
      case "prepare":
        void this.#prepare(message);
        return;
      case "start":
        this.#ready?.decoder.start(message.job);
        return;
      case "grant":
        this.#ready?.decoder.grant(message.id, message.events);
        return;
      case "pay":
        this.#ready?.decoder.pay(message.id, message.paidTokens, message.isLast);
        return;
      case "pause":
        this.#ready?.decoder.pause(message.id);
        return;
      case "resume":
        this.#ready?.decoder.resume(message.id);
        return;
      case "stop":
        this.#ready?.decoder.stop(message.id);
        return;
    }
  }

  async #load(options: LoadOptions): Promise<void> {
    await sendAndWait({ type: "loading", phase: "weights" });
    const loaded = await loadBackend(options, (level, message) => send({ type: "log", level, message }));
    await sendAndWait({ type: "loading", phase: "template" });
    const planner = new PromptPlanner({
      ...loaded,
      thinkTags: options.thinkTags,
      warn: (message) => send({ type: "log", level: "warn", message }),
    });
    const { thinkTags, closingTokens } = planner;
    const { contextWindow, description, sizeBytes } = loaded;
    const decoder = new Decoder({
      ...loaded,
      thinkTags,
      closingTokens,
      parallel: options.parallel,
      states: new SavedStates({
        backend: loaded.backend,
        bytesMax: options.pausedBytesMax,
        warn: (message) => send({ type: "log", level: "warn", message }),
      }),
      report: (jobs, batches) => send({ type: "progress", jobs, batches }),
      placed: (id, sequence, tookMs) => send({ type: "placed", id, sequence, tookMs }),
    });
    confineFurther();
    this.#ready = { planner, decoder };
    // A defect in the loop must not leave requests waiting: the process ends and is started again.
    decoder.run().catch((cause: unknown) => {
      process.stderr.write(`${cause instanceof Error ? cause.stack : String(cause)}\n`, endNow);
    });
    send({ type: "loaded", model: { contextWindow, description, sizeBytes, thinkTags } });
  }

  async #prepare({ id, messages, reasoning }: Extract<ToChild, { type: "prepare" }>): Promise<void> {
    const before = process.threadCpuUsage();
    const workMs = (): number => {
      const { user, system } = process.threadCpuUsage(before);
      return (user + system) / 1000;
    };
    try {
      if (this.#ready === undefined) throw new Error("no model is loaded");
      const plan = await this.#ready.planner.plan(messages, reasoning);
      send({ type: "prepared", id, ...plan, workMs: workMs() });
    } catch (cause) {
      const message = messageOf(cause);
      send({ type: "prepareFailed", id, message, workMs: workMs() });
    }
  }
}

const child = new Child();
process.on("message", (message: unknown) => {
  if (isToChild(message)) child.handle(message);
});
process.on("disconnect", endNow);
process.on("SIGHUP", () => {});
process.on("SIGINT", () => {});
process.on("SIGTERM", () => {});
send({ type: "up" });
