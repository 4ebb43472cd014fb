/** The settings of signing in with OpenID Connect: the section `sign_in` of the configuration. */
import type { OperatorRole } from "../actors.ts";

/** A person has it: a group, an e-mail address, or an address of a domain. */
export interface Condition {
  kind: "group" | "email" | "domain";
  /** Addresses and domains are in lower case. */
  value: string;
}

/** Names a condition. Two rules of a list never have the same one. */
export function conditionNameOf({ kind, value }: Condition): string {
  return `${kind} ${value}`;
}

export interface RoleRule extends Condition {
  role: OperatorRole;
}

export interface PlanRule extends Condition {
  plan: string;
}

export interface SignInSettings {
  /** URL of the issuer, as it calls itself. */
  issuer: string;
  clientId: string;
  /** Null: a public client, which PKCE alone protects. */
  clientSecret: string | null;
  /** What the button calls the issuer. */
  name: string;
  /** The claim that lists the groups of a person. */
  groupsClaim: string;
  /** The highest role that matches counts. */
  operators: readonly RoleRule[];
  /** The first rule that matches counts. */
  accounts: readonly PlanRule[];
  /** The issuer owns the addresses, so `email_verified` is not needed for rules. */
  trustsEmail: boolean;
  /** The contact of an account lets its person in, even if no rule matches. */
  linksContacts: boolean;
  /** ISO 8601: so long after a matching sign-in, roles end and accounts are suspended. */
  lapse: string;
  /** The issuer before this one. */
  formerly: string | null;
  /** Whom to ask for access, for people. */
  contact: string | null;
}

/** Returns whether both texts are the URL of one issuer, with or without a slash at the end. */
export function isSameIssuer(one: string, other: string): boolean {
  return canonical(one) === canonical(other);
}

function canonical(issuer: string): string {
  return (URL.parse(issuer)?.href ?? issuer).replace(/\/$/, "");
}
