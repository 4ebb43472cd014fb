/**
 * One child process of the engine: starts it, has it load the model, sends and receives messages,
 * kills it.
 *
 * Guarantees: output of the child and of the native library goes to the operator's log line by
 * line, never to the terminal. `loaded` resolves or rejects within the limits of load-watch.ts.
 * Messages to a dead child are dropped. `onEnd` is called exactly once. A child that does not load
 * its model is killed.
 */
import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";
import { createInterface } from "node:readline";
import { OperatorError } from "../../../errors.ts";
import type { EngineLog } from "../../engine-log.ts";
import { type FromChild, isMessage, type LoadedModel, type LoadOptions, type ToChild } from "../protocol.ts";
import { confiningOptions } from "./confinement.ts";
import { LoadWatch } from "./load-watch.ts";

/** Messages of a child whose model is loaded. */
export type EngineMessage = Exclude<FromChild, { type: "up" | "loading" | "loaded" | "refused" }>;

export interface EngineProcessOptions {
  load: LoadOptions;
  /** Time limit for reading the weights. */
  weightsMs: number;
  environment: Readonly<Record<string, string | undefined>>;
  log: EngineLog;
  onLoaded: (model: LoadedModel) => void;
  onMessage: (message: EngineMessage) => void;
  /** `reason` is for the log: exit code or signal, and the last lines of output. */
  onEnd: (reason: string, wasLoaded: boolean) => void;
}

/**
 * By default libuv spreads decodes over its four threads, and llama.cpp's helper threads then
 * start late for each token: 2 threads decode slower than 1 (61 and 95 tokens/s measured; 141 with
 * this setting).
 */
const oneNativeThread = { UV_THREADPOOL_SIZE: "1" };

const lineLengthMax = 1000;
const lastLinesMax = 5;

export class EngineProcess {
  /** Rejects with an `OperatorError`. */
  readonly loaded: Promise<LoadedModel>;
  readonly #child: ChildProcess;
  readonly #ended = Promise.withResolvers<void>();

  constructor(options: EngineProcessOptions) {
    const { environment, load, log, weightsMs } = options;
    const { modelPath } = load;
    const module = new URL(`../child${extname(import.meta.filename)}`, import.meta.url);
    this.#child = fork(module, [], {
      execPath: process.execPath,
      execArgv: confiningOptions(modelPath, environment),
      env: { ...environment, ...oneNativeThread },
      serialization: "advanced",
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    const { promise, resolve, reject } = Promise.withResolvers<LoadedModel>();
    this.loaded = promise;
    const refuse = (error: OperatorError): void => {
      reject(error);
      void this.kill();
    };
    const watch = new LoadWatch({ modelPath, engine: this.pid, weightsMs, log, expired: refuse });
    let isLoaded = false;
    this.#child.on("message", (message: unknown) => {
      if (!isMessage<FromChild>(message)) return;
      if (message.type === "up") this.send({ type: "load", options: load });
      else if (message.type === "loading") watch.enter(message.phase);
      else if (message.type === "refused") refuse(new OperatorError(message.message));
      else if (message.type === "loaded") {
        isLoaded = true;
        watch.stop();
        options.onLoaded(message.model);
        resolve(message.model);
      } else options.onMessage(message);
    });
    const lastLines: string[] = [];
    for (const input of [this.#child.stdout, this.#child.stderr]) {
      // Undefined, although its type says otherwise, if the process may open no more files.
      if (!input) continue;
      createInterface({ input }).on("line", (line) => {
        const text = line.slice(0, lineLengthMax);
        lastLines.push(text);
        if (lastLines.length > lastLinesMax) lastLines.shift();
        log.info({ engine: this.pid }, text);
      });
    }
    let hasEnded = false;
    const end = (how: string): void => {
      if (hasEnded) return;
      hasEnded = true;
      this.#ended.resolve();
      const reason = [how, ...lastLines].join("; ");
      if (!isLoaded) reject(watch.ended(reason));
      options.onEnd(reason, isLoaded);
    };
    this.#child.on("error", (error) => end(`it could not be started: ${error.message}`));
    this.#child.on("close", (code, signal) =>
      end(signal === null ? `exit code ${code}` : `signal ${signal}`),
    );
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  send(message: ToChild): void {
    // If sending fails, the child has ended, and `close` reports that.
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  /** Kills the child without asking it, because it has nothing to save. */
  kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    return this.#ended.promise;
  }
}
