/** The beginning of each thread. Arguments: the URL of its module and the folder of the cache. */
import { enableCompileCache } from "node:module";
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { invariant } from "../errors.ts";

/** What a module exports that `startThread` runs. */
export interface ThreadModule {
  /** Answers the messages of a port until it is closed. `data`: what `startThread` was given. */
  serve(port: MessagePort, data: unknown): void | Promise<void>;
}

const [module = "", folder] = process.argv.slice(2);
if (folder !== undefined) enableCompileCache(folder);
const { serve }: ThreadModule = await import(module);
invariant(parentPort !== null, "this module begins a thread");
await serve(parentPort, workerData);
