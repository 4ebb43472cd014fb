/**
 * Settings of V8's heap for the whole process. They hold for code that is compiled later and for
 * all threads, so call them first.
 */
import { setFlagsFromString } from "node:v8";

/**
 * Makes V8 allocate every new object in the young generation. By itself it moves a place of the
 * code to the old generation if most objects of that place survived a collection, as those of
 * running requests do. Nearly all objects of a request are garbage a moment later
 * (docs/decisions/0061).
 */
export function keepNewObjectsYoung(): void {
  setFlagsFromString("--no-allocation-site-pretenuring");
}

/**
 * Makes V8 collect and return memory when the program has little to do, and grow its heaps less.
 * Node lets it do so only near the limit, so memory of the start and of a busy minute was kept for
 * ever (docs/decisions/0118).
 */
export function returnUnusedMemory(): void {
  for (const flag of [
    "--memory-saver-mode",
    // Times without collections after which V8 looks whether there is something to return.
    "--gc-memory-reducer-start-delay-ms=1000",
    "--memory-reducer-delay-ms=1000",
  ])
    setFlagsFromString(flag);
}
