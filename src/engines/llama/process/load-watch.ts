/**
 * Watches one start of the engine's process: logs its phases, and ends a start that takes too long.
 *
 * Guarantees that `expired` is called at most once, with the phase that took longer than its limit. A suspended parent
 * does not expire a start, because time is counted in ticks (progress-watch.ts).
 */
import { OperatorError } from "../../../errors.ts";
import type { EngineLog } from "../../engine-log.ts";
import type { LoadPhase } from "../protocol.ts";
import { ProgressWatch } from "./progress-watch.ts";

export interface LoadWatchOptions {
  modelPath: string;
  /** Process number. */
  engine: number | undefined;
  /** Limit of reading the weights. */
  weightsMs: number;
  log: EngineLog;
  expired: (error: OperatorError) => void;
}

/** The process only has to read its own code. */
const processMs = 60_000;
/** The process itself breaks a template off much earlier (template.ts); this limit is for a process that cannot. */
const templateMs = 60_000;
/** Time between two log lines of a start that goes on. */
const noticeMs = 30_000;

const gibibyte = 2 ** 30;

/** Five minutes and one more for each GiB, which is 17 MiB/s: slower than any disk that a model is run from. */
export function weightsMsOf(sizeBytes: number): number {
  return Math.ceil(60_000 * (5 + sizeBytes / gibibyte));
}

export class LoadWatch {
  readonly #options: LoadWatchOptions;
  readonly #startedMs = performance.now();
  #phase: LoadPhase = "process";
  #watch: ProgressWatch | undefined;
  #notices: NodeJS.Timeout | undefined;

  constructor(options: LoadWatchOptions) {
    this.#options = options;
    const { log, modelPath, engine, weightsMs } = options;
    log.info({ modelPath, engine, limitSeconds: weightsMs / 1000 }, "loading the model");
    this.#notices = setInterval(() => {
      const tookSeconds = Math.round((performance.now() - this.#startedMs) / 1000);
      log.warn(
        { modelPath, engine, tookSeconds },
        `still loading the model after ${tookSeconds} s: ${doing[this.#phase]}`,
      );
    }, noticeMs).unref();
    this.enter("process");
  }

  /** The error for a process that ended before the model was loaded. `reason`: how it ended, and its last lines. */
  ended(reason: string): OperatorError {
    this.stop();
    const cause = causes.find(({ signs }) => signs.test(reason))?.cause;
    return this.#refusal(`its process ended while ${doing[this.#phase]} (${reason})${cause ?? ""}`);
  }

  enter(phase: LoadPhase): void {
    this.#phase = phase;
    this.#watch?.stop();
    const limitMs = { process: processMs, weights: this.#options.weightsMs, template: templateMs }[phase];
    this.#watch = new ProgressWatch({
      boundMs: limitMs,
      isDue: () => true,
      stalled: () => {
        this.stop();
        this.#options.expired(
          this.#refusal(`${doing[phase]} took longer than ${limitMs / 1000} s${advice[phase]}`),
        );
      },
    });
    this.#watch.look();
  }

  stop(): void {
    this.#watch?.stop();
    clearInterval(this.#notices);
  }

  #refusal(why: string): OperatorError {
    return new OperatorError(`The model file ${this.#options.modelPath} cannot be used: ${why}.`);
  }
}

/** Memory is blamed only if the kernel killed the process, or if the process itself reported a lack of memory. */
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

const doing: Record<LoadPhase, string> = {
  process: "starting its process",
  weights: "reading its weights",
  template: "reading its chat template",
};

const advice: Record<LoadPhase, string> = {
  process: "",
  weights: "; if its disk is slow, raise load_seconds of the model",
  template: "; the template may loop for ever, so use another file of the model",
};
