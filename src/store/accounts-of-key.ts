/**
 * Finds the accounts whose charges name a key, by which indexes find them: the account of the key,
 * or the accounts of the people behind its front end.
 */
import type { SqlConnections } from "./queries.ts";
import type { SqlDialect } from "./sql.ts";

/** A query after `withAccountOfKey`. */
export interface OfFrontEnd {
  /** The issuer of the people behind the key of the query. */
  frontEnd?: string | undefined;
}

/** The issuer of the people behind a front end, for their rows. */
export function issuerOfFrontEnd(name: string): string {
  return `front_end:${name}`;
}

/** `issuer`: a parameter. */
export function accountsBehind(issuer: string): string {
  return `(select account from person where issuer = ${issuer} and account is not null)`;
}

/** Adds the account of the key to a query that has only a key. */
export async function withAccountOfKey<
  Query extends { account?: string | undefined; key?: string | undefined },
>(query: Query, find: SqlConnections["find"], p: SqlDialect["parameter"]): Promise<Query & OfFrontEnd> {
  if (query.account !== undefined || query.key === undefined) return query;
  const text = `select account, acts_for_name from api_key where id = ${p(1)}`;
  const [cells] = await find("service", { name: "account of key", text, values: [query.key] });
  const [account, frontEnd] = cells ?? [""];
  if (typeof frontEnd === "string") return { ...query, frontEnd: issuerOfFrontEnd(frontEnd) };
  return { ...query, account: String(account) };
}
