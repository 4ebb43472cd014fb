/**
 * Watches one start of the engine's process: logs its phases, and ends a start that takes too
 * long.
 *
 * Guarantees: `expired` is called at most once, with an error that names the phase. A suspended
 * parent does not expire a start (progress-watch.ts).
 */
import { OperatorError } from "../../../errors.ts";
import type { EngineLog } from "../../engine-log.ts";
import type { LoadPhase } from "../protocol.ts";
import { ProgressWatch } from "./progress-watch.ts";

interface LoadWatchOptions {
  modelPath: string;
  /** Process number, for the log. */
  engine: number | undefined;
  /** Time limit for reading the weights. */
  weightsMs: number;
  log: EngineLog;
  expired: (error: OperatorError) => void;
}

/** Interval of log lines during a long start. */
const noticeMs = 30_000;

export const gibibyte = 2 ** 30;

/** Five minutes plus one for each GiB, or 17 MiB/s, which is slower than any usual disk. */
export function weightsMsOf(sizeBytes: number): number {
  return Math.ceil(60_000 * (5 + sizeBytes / gibibyte));
}

interface Phase {
  doing: string;
  /** Null: `weightsMs`. */
  limitMs: number | null;
  advice: string;
}

const phases: Record<LoadPhase, Phase> = {
  process: { doing: "starting its process", limitMs: 60_000, advice: "" },
  weights: {
    doing: "reading its weights",
    limitMs: null,
    advice: "; if its disk is slow, raise load_seconds of the model",
  },
  // The process stops a looping template much earlier (time-limit.ts). This limit is for a process
  // that cannot.
  template: {
    doing: "reading its chat template",
    limitMs: 60_000,
    advice: "; the template may loop for ever, so use another file of the model",
  },
};

/** Memory is blamed only if the kernel killed the process, or if its output mentions memory. */
const causes: readonly { signs: RegExp; cause: string }[] = [
  {
    signs:
      /signal SIGKILL|exit code 137|out of memory|bad_alloc|(unable|failed|cannot) to allocate|cannot allocate/i,
    cause: "; the machine may have too little memory for it",
  },
  {
    signs: /signal SIG(ABRT|BUS|FPE|ILL|SEGV|TRAP)|exit code 1(27|34|39)|undefined symbol|shared object/,
    cause:
      "; llama.cpp crashed: the file may be damaged, or LD_LIBRARY_PATH may lead to other libraries of that name",
  },
];

export class LoadWatch {
  readonly #options: LoadWatchOptions;
  readonly #notices: NodeJS.Timeout;
  #phase = phases.process;
  #watch: ProgressWatch | undefined;

  constructor(options: LoadWatchOptions) {
    this.#options = options;
    const { log, modelPath, engine, weightsMs } = options;
    const startedMs = performance.now();
    log.info({ modelPath, engine, limitSeconds: weightsMs / 1000 }, "loading the model");
    this.#notices = setInterval(() => {
      const tookSeconds = Math.round((performance.now() - startedMs) / 1000);
      const message = `still loading the model after ${tookSeconds} s: ${this.#phase.doing}`;
      log.warn({ modelPath, engine, tookSeconds }, message);
    }, noticeMs).unref();
    this.enter("process");
  }

  enter(name: LoadPhase): void {
    const phase = phases[name];
    this.#phase = phase;
    this.#watch?.stop();
    const boundMs = phase.limitMs ?? this.#options.weightsMs;
    this.#watch = new ProgressWatch({
      boundMs,
      isDue: () => true,
      stalled: () => {
        this.stop();
        const why = `${phase.doing} took longer than ${boundMs / 1000} s${phase.advice}`;
        this.#options.expired(this.#refusal(why));
      },
    });
    this.#watch.look();
  }

  /** Returns the error for an early end. `reason`: exit code or signal, and its last lines. */
  ended(reason: string): OperatorError {
    this.stop();
    const cause = causes.find(({ signs }) => signs.test(reason))?.cause ?? "";
    return this.#refusal(`its process ended while ${this.#phase.doing} (${reason})${cause}`);
  }

  stop(): void {
    this.#watch?.stop();
    clearInterval(this.#notices);
  }

  #refusal(why: string): OperatorError {
    return new OperatorError(`The model file ${this.#options.modelPath} cannot be used: ${why}.`);
  }
}
