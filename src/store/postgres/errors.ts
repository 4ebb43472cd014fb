/**
 * Interprets the errors of PostgreSQL and of its driver.
 *
 * Guarantees that an error is a `StoreUnavailableError` if a retry can succeed. An error at the
 * start is an OperatorError with the cause, the place and the remedy.
 */
import pg from "pg";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { causeOf, storeError } from "../errors.ts";

/** A database, without its password, for messages. */
export interface Place {
  /** `host:port/database` or the folder of a socket. */
  where: string;
  database: string;
  user: string;
}

/**
 * Returns the SQLSTATE of an error of the server. Null if the connection failed, not the
 * statement.
 */
function stateOf(error: unknown): string | null {
  return error instanceof pg.DatabaseError ? (error.code ?? "") : null;
}

/** Returns the SQLSTATE of an error of the driver, or of the cause of a converted error. */
export function sqlState(error: unknown): string | null {
  return stateOf(error) ?? (error instanceof Error ? stateOf(error.cause) : null);
}

/** Returns whether another session kept a lock for longer than the limit. */
export function isLockTimeout(error: unknown): boolean {
  return sqlState(error) === "55P03";
}

/** Returns whether the server ended a transaction that waited for one that waited for it. */
export function isDeadlock(error: unknown): boolean {
  return sqlState(error) === "40P01";
}

/** Returns whether the server stopped a statement at its time limit. */
export function isStatementTimeout(error: unknown): boolean {
  return sqlState(error) === "57014";
}

/** Returns the unique index that a row violates; null for other errors. */
export function doubledIn(error: unknown): string | null {
  const isDoubled = error instanceof pg.DatabaseError && error.code === "23505";
  return isDoubled ? (error.constraint ?? null) : null;
}

/**
 * Transient errors. The connection is lost, or a time limit passed. The server rolled back, is out
 * of resources, starts or stops, has a failing disk, or is read-only because it was the primary
 * until now. A prepared statement is gone (26000), or a migration changed its columns (0A000): the
 * next attempt prepares it.
 */
const transient = /^(08|40|53|57|58)|^(55P03|25006|25P03|25P04|26000|0A000)$/;

/**
 * Converts an error of the driver. If a retry can succeed, the result is a
 * `StoreUnavailableError`.
 */
export function postgresError(error: unknown): Error {
  const state = stateOf(error);
  return storeError(error, state === null || transient.test(state));
}

/**
 * Converts an error while a store is opened into an OperatorError, if its cause is known. Give
 * `unchanged` an empty text if a migration may have been committed before.
 */
export function openingError(error: unknown, place: Place, unchanged = " Nothing was changed."): unknown {
  const { where, database, user } = place;
  if (error instanceof OperatorError) return error;
  const cause = error instanceof StoreUnavailableError ? error.cause : error;
  const why = causeOf(cause);
  const operatorError = (message: string) => new OperatorError(message, cause);
  const state = sqlState(error);
  switch (state) {
    case "28P01":
    case "28000":
      return operatorError(
        `PostgreSQL at ${where} does not authenticate the user "${user}" (${why}). Correct the user or the password in the URL, or the rules of the server (pg_hba.conf).`,
      );
    case "3D000":
      return operatorError(
        `PostgreSQL at ${where} has no database "${database}". Create it on that server: createdb --owner=${user} ${database}`,
      );
    case "42501": {
      const remedy = /permission denied for (?!database)|must be owner/.test(why)
        ? `Set the user that owns the schema "inkwell" with its tables and functions, or make "${user}" their owner.`
        : `Run: grant create on database ${database} to ${user}. Existing tables must belong to this user.`;
      return operatorError(
        `The user "${user}" lacks a right in the database ${where}: ${why}.${unchanged} ${remedy}`,
      );
    }
    case "25006":
      return operatorError(
        `PostgreSQL at ${where} is read-only: it is a standby, or configured so. Set the primary.`,
      );
    case "55P03":
      return operatorError(
        `Another session keeps tables of the database ${where} locked: a dump, an audit, a vacuum, or a transaction that somebody left open (${why}).${unchanged} Start again when it has ended; the view pg_stat_activity lists sessions.`,
      );
    case "57P03":
      return operatorError(`PostgreSQL at ${where} is not ready (${why}). Start again in a moment.`);
    case "53300":
      return operatorError(
        `PostgreSQL at ${where} accepts no more connections (${why}). Raise its max_connections, or let fewer programs use it.`,
      );
  }
  // The driver's message if the server requires a password and the URL does not contain it.
  if (why.includes("client password must be a string")) {
    return operatorError(
      `PostgreSQL at ${where} requires a password for the user "${user}". Add it to the URL: database: postgres://${user}:PASSWORD@...`,
    );
  }
  if (error instanceof StoreUnavailableError) {
    if (state !== null && !state.startsWith("08"))
      return operatorError(
        `PostgreSQL at ${where} refused (${why}).${unchanged} Remove the cause, and start again.`,
      );
    if (why.includes("does not support SSL"))
      return operatorError(
        `PostgreSQL at ${where} has no TLS. Enable it there, or correct sslmode in the URL.`,
      );
    return operatorError(
      `PostgreSQL at ${where} cannot be reached (${why}). Start it, or correct the URL: database: postgres://USER:PASSWORD@HOST:5432/DATABASE`,
    );
  }
  return error;
}
