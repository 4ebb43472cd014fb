/** The beginning of each thread. Argument: the URL of its module. */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { invariant } from "../errors.ts";

/** The exports of a module that `startThread` runs. */
export interface ThreadModule {
  /** Answers the messages of a port until it is closed. `data`: what `startThread` was given. */
  serve(port: MessagePort, data: unknown): void | Promise<void>;
}

const [module = ""] = process.argv.slice(2);
const { serve }: ThreadModule = await import(module);
invariant(parentPort !== null, "this module begins a thread");
await serve(parentPort, workerData);
