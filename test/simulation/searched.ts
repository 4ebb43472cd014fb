/** The small worlds with the kernel, and the histories of clocks: a mutant is in all of them. */
export { decide } from "../../src/ledger/kernel.ts";
export { search } from "../fixtures/exhaust.ts";
export { searchClocks } from "../fixtures/small-clocks.ts";
export { smallWorlds } from "../fixtures/small-worlds.ts";
