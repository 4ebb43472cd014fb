/**
 * The protocol between the SQLite store and its threads: store.ts sends calls, worker.ts answers
 * them.
 */
import type { ClockState } from "../../ledger/clock.ts";
import type { EventSettings } from "../../ledger/events.ts";
import type { Operation } from "../../ledger/operations.ts";
import type { Decision } from "../../ledger/outcomes.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { PlanChanges } from "../../ledger/plan-section.ts";
import type { AccountDraft, DraftOptions, DraftOutcome } from "../contacts.ts";
import type { PlansOptions } from "../plans.ts";
import type { SqlStatement } from "../sql.ts";
import type { SharedClock } from "./clock.ts";
import type { SqliteFile } from "./file.ts";
import type { Cells } from "./query.ts";

export interface SqliteThreadData {
  /** A writer takes commits and statements, a reader statements. */
  role: "writer" | "reader";
  file: SqliteFile;
  /** The plans section of the configuration. */
  plans: Plans;
  /** Whether the writer may migrate a file with an older schema. */
  upgrade: boolean;
  clock: SharedClock;
  /** The operator who accepts that ledger time is ahead of the clock, or null. */
  clockAcceptedBy: string | null;
  /** The time limit of a reader's statement. */
  listMs: number;
}

export interface Calls {
  commit(operations: readonly Operation[], events: EventSettings | null): Decision[];
  putAccount(draft: AccountDraft, options: DraftOptions, events: EventSettings | null): DraftOutcome;
  applyPlans(section: Plans, options: PlansOptions): PlanChanges;
  clock(): ClockState;
  rows(statement: SqlStatement): Cells[];
  /** Writes in one transaction. Returns the rows of the first statement. */
  write(statements: readonly SqlStatement[]): Cells[];
  /** Sums charges. Returns whether there is more to do. */
  sumUsage(timezone: string): boolean;
  /** Closes the file and ends the thread. */
  close(): void;
}

/** A role implements some of the calls. */
export type Handlers = { [M in keyof Calls]?: (...args: Parameters<Calls[M]>) => ReturnType<Calls[M]> };

export type Call<M extends keyof Calls = keyof Calls> = {
  [P in M]: { id: number; method: P; args: Parameters<Calls[P]> };
}[M];

export type ThreadReply = { id: number; value: unknown } | { id: number; error: Fault };

/** An error, in a form that can be sent between threads. */
export interface Fault {
  kind: "list too slow" | "operator" | "unavailable" | "defect";
  message: string;
  stack: string;
  /** Used if the kind is `unavailable`. */
  mayBeDone: boolean;
}

/** The `id` of the first answer: the thread sends it without a call when the file is open. */
export const openedId = 0;
