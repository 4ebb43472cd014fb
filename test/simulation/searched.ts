/** The small worlds with the kernel, in one bundle: a mutant is in both. */
export { decide } from "../../src/ledger/kernel.ts";
export { search } from "../fixtures/exhaust.ts";
export { smallWorlds } from "../fixtures/small-worlds.ts";
