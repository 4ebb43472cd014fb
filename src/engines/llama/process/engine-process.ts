/**
 * One child process of the engine: starts it, sends and receives messages, kills it.
 *
 * Guarantees: output of the child and of the native library goes to the operator's log line by line, never to the
 * terminal. Messages to a dead child are dropped. `onEnd` is called exactly once.
 */
import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";
import { createInterface } from "node:readline";
import type { EngineLog } from "../../engine-log.ts";
import { type FromChild, isMessage, type ToChild } from "../protocol.ts";
import { confiningOptions } from "./confinement.ts";

export interface EngineProcessOptions {
  modelPath: string;
  environment: Readonly<Record<string, string | undefined>>;
  log: EngineLog;
  onMessage: (message: FromChild) => void;
  /** `reason` is for the log: exit code or signal, and the last lines of output. */
  onEnd: (reason: string) => void;
}

/**
 * By default libuv spreads decodes over its four threads, and llama.cpp's helper threads then start late for each
 * token: 2 threads decode slower than 1 (61 and 95 tokens/s measured; 141 with this setting).
 */
const oneNativeThread = { UV_THREADPOOL_SIZE: "1" };

const lineLengthMax = 1000;
const lastLinesMax = 5;

export class EngineProcess {
  readonly #child: ChildProcess;
  readonly #ended = Promise.withResolvers<void>();
  readonly #lastLines: string[] = [];

  constructor(options: EngineProcessOptions) {
    const module = new URL(`../child${extname(import.meta.filename)}`, import.meta.url);
    this.#child = fork(module, [], {
      execPath: process.execPath,
      execArgv: confiningOptions(options.modelPath, options.environment),
      env: { ...options.environment, ...oneNativeThread },
      serialization: "advanced",
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    this.#child.on("message", (message: unknown) => {
      if (isMessage<FromChild>(message)) options.onMessage(message);
    });
    for (const input of [this.#child.stdout, this.#child.stderr]) {
      if (input === null) continue;
      createInterface({ input }).on("line", (line) => {
        const text = line.slice(0, lineLengthMax);
        this.#lastLines.push(text);
        if (this.#lastLines.length > lastLinesMax) this.#lastLines.shift();
        options.log.info({ engine: this.pid }, text);
      });
    }
    let ended = false;
    const end = (how: string): void => {
      if (ended) return;
      ended = true;
      this.#ended.resolve();
      options.onEnd([how, ...this.#lastLines].join("; "));
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
