/**
 * Settings of V8's heap for the whole process. They hold for code that is compiled later and for
 * all threads, so call them first.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

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
 * Collects and returns the memory of the start, which Node keeps otherwise. Takes some 0.1 s. A
 * setting that returns memory all the time makes requests slower (docs/decisions/0118).
 */
export function returnMemoryOfStart(): void {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")({ type: "major", execution: "sync", flavor: "last-resort" });
  setFlagsFromString("--no-expose-gc");
}
