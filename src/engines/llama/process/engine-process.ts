/**
 * One child process of the engine: started, spoken to, listened to, killed.
 *
 * Guarantees: what the child and the native library print goes to the operator's log, line by line, never to the
 * terminal; a message to a dead child is dropped, its end is told exactly once.
 */
import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import type { EngineLog } from "../../engine-log.ts";
import { type FromChild, isFromChild, type ToChild } from "../protocol.ts";
import { confiningOptions } from "./confinement.ts";

export interface EngineProcessOptions {
  modelPath: string;
  environment: Readonly<Record<string, string | undefined>>;
  log: EngineLog;
  onMessage: (message: FromChild) => void;
  /** `reason` is for the log: how it ended and what it printed last. */
  onEnd: (reason: string) => void;
}

/**
 * Without it libuv hands each decode to another of its four threads, and llama.cpp's helper threads start anew and late for each
 * token: 2 threads then decode slower than 1 (61 and 95 tokens/s measured; 141 with this).
 */
const oneNativeThread = { UV_THREADPOOL_SIZE: "1" };

const lineLengthMax = 1000;
const lastLinesMax = 5;

export class EngineProcess {
  readonly #child: ChildProcess;
  readonly #ended = Promise.withResolvers<void>();
  readonly #lastLines: string[] = [];

  constructor(options: EngineProcessOptions) {
    const module = new URL(`./child${extname(import.meta.filename)}`, import.meta.url);
    this.#child = fork(module, [], {
      execPath: process.execPath,
      execArgv: confiningOptions(options.modelPath, options.environment),
      env: { ...options.environment, ...oneNativeThread },
      serialization: "advanced",
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    this.#child.on("message", (message: unknown) => {
      if (isFromChild(message)) options.onMessage(message);
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream !== null) this.#logLines(stream, options.log);
    }
    let told = false;
    const end = (how: string): void => {
      if (told) return;
      told = true;
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
    // A failure to send is the child's end, which `close` tells.
    if (this.#child.connected) this.#child.send(message, () => {});
  }

  /** It keeps nothing that would have to be saved, so it is not asked. */
  kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    return this.#ended.promise;
  }

  #logLines(stream: Readable, log: EngineLog): void {
    createInterface({ input: stream }).on("line", (line) => {
      const text = line.slice(0, lineLengthMax);
      this.#lastLines.push(text);
      if (this.#lastLines.length > lastLinesMax) this.#lastLines.shift();
      log.info({ engine: this.pid }, text);
    });
  }
}
