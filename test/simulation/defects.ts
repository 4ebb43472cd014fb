/**
 * Defects that the simulation must find: those that hurt before, put back one at a time, and some
 * of their kind.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { bundleProgram, bundleWorld, type Edit } from "./process.ts";
import type { SimulationResult, WorldOptions } from "./world.ts";

export interface Defect {
  name: string;
  edit: Edit;
}

export const defects: readonly Defect[] = [
  {
    name: "holds of processes that died are never given back",
    edit: {
      file: "src/store/sweeper.ts",
      from: "const failures: unknown[] = [];",
      to: "const failures: unknown[] = []; if (failures.length === 0) return;",
    },
  },
  {
    name: "a plan change that takes effect now leaves the scheduled one, which counts again later",
    edit: { file: "src/ledger/account.ts", from: "  account.nextPlan = null;\n", to: "" },
  },
  {
    name: "a hold is voided because its first answer was lost, although a further attempt found it",
    edit: {
      file: "src/ledger/ledger.ts",
      from: "promise.catch(() => {\n        if (entry.mayBeDone)",
      to: "promise.catch(() => {}).then(() => {\n        if (entry.mayBeDone)",
    },
  },
  {
    name: "a repeated extension takes credits again",
    edit: { file: "src/ledger/kernel.ts", from: "if (n <= row.extension) {", to: "if (n < row.extension) {" },
  },
  {
    name: "a payment counts again when it is sent again",
    edit: {
      file: "src/ledger/additional.ts",
      from: 'return { kind: "added", additionalMicro: additionalOf(account), replayed: true };\n  }\n  if (account.state',
      to: "}\n  if (account.state",
    },
  },
  {
    name: "an answer generates before its next slice is paid",
    edit: {
      file: "src/chat/hold-extender.ts",
      from: "this.#paidTokens = this.#paidBy(held.amountMicro);",
      to: "this.#paidTokens = this.#paidBy(held.amountMicro) + 20;",
    },
  },
  {
    name: "a clock that leaps is followed, and windows refresh early",
    edit: {
      file: "src/ledger/clock.ts",
      from: "export const wrongMsMax = 24 * 3_600_000;",
      to: "export const wrongMsMax = 90 * 24 * 3_600_000;",
    },
  },
  {
    name: "a settlement is given up because the plan is not in the plans section any more",
    edit: {
      file: "src/ledger/ending.ts",
      from: "  const row = work.hold(account.id, operation.requestId);\n",
      to: '  if (!work.plans.offered.includes(account.plan)) return { kind: "unknown_hold" };\n  const row = work.hold(account.id, operation.requestId);\n',
    },
  },
  {
    name: "all requests wait in one line, so an account with many of them starves the others",
    edit: {
      file: "src/engines/upstream/admission-queue.ts",
      from: "    const share = total / this.#accounts.size;\n",
      to: "    for (const { accountId } of this.#arrivedMs.keys()) return accountId;\n    const share = total / this.#accounts.size;\n",
    },
  },
  {
    name: "a front end opens more accounts in a day than its key allows",
    edit: {
      file: "src/accounts/front-ends.ts",
      from: "{ most: newAccountsPerDay, atMs }",
      to: "{ most: 10 * newAccountsPerDay, atMs }",
    },
  },
  {
    name: "an erase is acknowledged, and the person keeps the account",
    edit: {
      file: "src/actions/people-runs.ts",
      from: "await store.erasePerson(id, nowMs,",
      to: "void (id, nowMs,",
    },
  },
  {
    name: "a server goes on generating for a request that has ended",
    edit: {
      file: "src/engines/upstream/exchange.ts",
      from: 'if (!this.#isClosed) this.#controller?.abort(new Error("aborted"));',
      to: "",
    },
  },
  {
    name: "an event is sent although the one before was refused",
    edit: {
      file: "src/events/endpoint-sender.ts",
      from: 'return { ...attempt, state: "pending", nextMs',
      to: 'return { ...attempt, state: "dead", nextMs',
    },
  },
];

type Simulate = (options: WorldOptions) => Promise<SimulationResult>;

/** Returns a simulation of the program with changed sources. */
export async function simulationOf(edits: readonly Edit[]): Promise<Simulate & AsyncDisposable> {
  const [program, world] = await Promise.all([bundleProgram(edits), bundleWorld(edits)]);
  const loaded = await loadBundle<typeof import("./world.ts")>(world);
  const run: Simulate = (options) => loaded.exports.simulate(program, options);
  return Object.assign(run, { [Symbol.asyncDispose]: () => loaded[Symbol.asyncDispose]() });
}

/** Loads a bundle from a file beside the packages that it imports. */
async function loadBundle<Exports>(text: string): Promise<{ exports: Exports } & AsyncDisposable> {
  const cache = fileURLToPath(new URL("../../node_modules/.cache/", import.meta.url));
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "simulation-"));
  const file = join(folder, "bundle.mjs");
  writeFileSync(file, text);
  return {
    exports: await import(pathToFileURL(file).href),
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true }),
  };
}
