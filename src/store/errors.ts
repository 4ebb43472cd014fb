/**
 * Converts errors of the database drivers for the ledger and the service. The drivers' codes are
 * known to the stores.
 */
import { messageOf, StoreUnavailableError } from "../errors.ts";

/** Returns a `StoreUnavailableError` if the error is transient, so that a retry can succeed. */
export function storeError(error: unknown, isTransient: boolean): Error {
  if (isTransient) return unavailable(error);
  return error instanceof Error ? error : new Error(messageOf(error));
}

export function unavailable(cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(`the database is unavailable at present: ${causeOf(cause)}`, { cause });
}

/** Returns the message of an error, or all messages of an attempt on several addresses. */
export function causeOf(error: unknown): string {
  return error instanceof AggregateError ? error.errors.map(causeOf).join("; ") : messageOf(error);
}
