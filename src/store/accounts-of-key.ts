/**
 * Finds the accounts whose charges name a key, by which indexes find them: the account of the key,
 * or the accounts of the people behind its front end.
 */

/** A query that names a key. Its account is filled in, or its front end. */
export interface OfFrontEnd {
  /** The issuer of the people behind the key of the query. */
  frontEnd?: string | undefined;
}

/** `issuer`: a parameter. */
export function accountsBehind(issuer: string): string {
  return `(select account from person where issuer = ${issuer} and account is not null)`;
}
