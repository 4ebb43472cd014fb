/**
 * What errors of PostgreSQL and of its driver mean.
 *
 * Guarantees that every error which another attempt can mend is a `StoreUnavailableError`. Whatever keeps the program
 * from starting on a database is one OperatorError that says what, where and what to do.
 */
import pg from "pg";
import { messageOf, OperatorError } from "../../errors.ts";
import { StoreUnavailableError } from "../../ledger/retry.ts";
import { limits } from "./limits.ts";

/** Where a database is, in words that may be logged. */
export interface Place {
  /** `host:port/database` or the folder of a socket. */
  where: string;
  database: string;
  user: string;
}

/** SQLSTATE of what the server said; null where it said nothing: the connection is the matter. */
function stateOf(error: unknown): string | null {
  return error instanceof pg.DatabaseError ? (error.code ?? "") : null;
}

/** SQLSTATE of the cause of one of our errors, or of an error of the driver. */
export function sqlState(error: unknown): string | null {
  return stateOf(error) ?? (error instanceof Error ? stateOf(error.cause) : null);
}

/** Whether a row, or something else, was locked by another session for longer than may be waited. */
export function isLockTimeout(error: unknown): boolean {
  return sqlState(error) === "55P03";
}

/**
 * Whether the server answered with an error that means a rollback. Errors of a server that stops and of connections that
 * fail may follow a commit that was done.
 */
export function isRefused(error: unknown): boolean {
  const state = sqlState(error);
  return state !== null && !/^(08|57P)/.test(state);
}

/** Whether the server stopped a statement at its time limit. */
export function isStatementTimeout(error: unknown): boolean {
  return sqlState(error) === "57014";
}

/** The unique index that an error is about; null where it is about something else. */
export function doubledIn(error: unknown): string | null {
  const isDoubled = error instanceof pg.DatabaseError && error.code === "23505";
  return isDoubled ? (error.constraint ?? null) : null;
}

/**
 * Connection lost, transaction rolled back by the server, out of resources, stopped or being started, a disk that
 * fails, a server that only reads (it was the primary a moment ago), a time limit.
 */
const passing = /^(08|40|53|57|58)|^(55P03|25006|25P03|25P04)$/;

/** An error of the driver as the rest of the service knows it; what trying again can mend is told apart. */
export function storeError(error: unknown): Error {
  const state = stateOf(error);
  if (state !== null && !passing.test(state)) return error instanceof Error ? error : new Error(whyOf(error));
  return unavailable(error);
}

export function unavailable(error: unknown): StoreUnavailableError {
  return new StoreUnavailableError(`the database does not answer as it should just now: ${whyOf(error)}`, {
    cause: error,
  });
}

export function whyOf(error: unknown): string {
  // Of several addresses, each has failed in its own way.
  if (error instanceof AggregateError) return error.errors.map(whyOf).join("; ");
  return messageOf(error);
}

/** An error while a store is opened, as an operator is told it. */
export function openingError(error: unknown, { where, database, user }: Place): unknown {
  if (error instanceof OperatorError) return error;
  const cause = error instanceof StoreUnavailableError ? error.cause : error;
  const why = whyOf(cause);
  const told = (message: string) => new OperatorError(message, cause);
  switch (sqlState(error)) {
    case "28P01":
    case "28000":
      return told(
        `PostgreSQL at ${where} does not let the user "${user}" in (${why}). Correct the user or the password in the address, or the rules of the server (pg_hba.conf).`,
      );
    case "3D000":
      return told(`PostgreSQL at ${where} has no database "${database}". Make it: createdb ${database}`);
    case "42501":
      return told(
        `The user "${user}" may not do this in the database ${where}: ${why}. Give the right: grant create on database ${database} to ${user}. Tables that are there already must be the user's own.`,
      );
    case "25006":
      return told(`PostgreSQL at ${where} only reads: it is a standby, or set so. Name the primary.`);
    case "55P03":
      return told(
        `Another node is changing the database ${where} for longer than ${limits.migrationLockMs / 1000} s. Start again when it is done.`,
      );
    case "57P03":
      return told(`PostgreSQL at ${where} is not ready yet (${why}). Start again in a moment.`);
    case "53300":
      return told(
        `PostgreSQL at ${where} takes no more connections (${why}). Raise its max_connections, or let fewer programs use it.`,
      );
  }
  // The driver's own words for a server that asks for one, and an address that has none.
  if (why.includes("client password must be a string")) {
    return told(
      `PostgreSQL at ${where} wants a password of the user "${user}", and the address has none: database: postgres://${user}:PASSWORD@...`,
    );
  }
  if (error instanceof StoreUnavailableError) {
    return told(
      `PostgreSQL at ${where} cannot be reached (${why}). Start it, or correct the address: database: postgres://USER:PASSWORD@HOST:5432/DATABASE`,
    );
  }
  return error;
}
