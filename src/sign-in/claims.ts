/**
 * Reads the claims of a person out of a checked ID token. The issuer vouches for the token, and
 * people choose their own names there: claims are bounded texts, and nothing in them is believed
 * but `sub`, and an e-mail address that the issuer has verified.
 */
import * as rules from "../accounts/value-rules.ts";
import { isRecord } from "../objects.ts";
import type { EpochMs } from "../units.ts";

/** Longest lists and texts that an issuer may send. A person has a few hundred groups at most. */
const groupsMax = 10_000;
const groupCharactersMax = 1_000;

/** Clocks of the issuer and of this machine may differ by so much. */
const clocksDifferMs = 5 * 60_000;

export interface Identity {
  issuer: string;
  sub: string;
  /** For people to read. */
  name: string | null;
  email: string | null;
  /** The claim `email_verified` is the value true itself. */
  emailVerified: boolean;
  /** Null: the issuer has left them out, so rules about groups cannot be decided. */
  groups: ReadonlySet<string> | null;
  /** The issuer says that it has left them out because they are too many, as Entra ID does. */
  hasTooManyGroups: boolean;
  /** When the person has signed in, if the issuer says so. */
  authenticatedMs: EpochMs | null;
}

type Claims = Readonly<Record<string, unknown>>;
export type TokenClaims = Claims & { iss: string; sub: string };

export function identityIn(claims: TokenClaims, groupsClaim: string): Identity {
  const email = textIn(claims.email, rules.email.pattern);
  return {
    issuer: claims.iss,
    sub: claims.sub,
    name:
      textIn(claims.name, rules.contact.pattern) ?? textIn(claims.preferred_username, rules.contact.pattern),
    email,
    emailVerified: email !== null && claims.email_verified === true,
    groups: groupsIn(claims[groupsClaim]),
    hasTooManyGroups:
      claims.hasgroups === true || (isRecord(claims._claim_names) && groupsClaim in claims._claim_names),
    authenticatedMs: pastIn(claims.auth_time),
  };
}

/** Whether the userinfo endpoint may know more than the token. */
export function needsMore(claims: Claims, groupsClaim: string): boolean {
  const wanted = ["email", groupsClaim, "name"];
  return wanted.some((name) => claims[name] === undefined);
}

/** A text that no rule of Inkwell accepts counts as absent. */
function textIn(claim: unknown, pattern: RegExp): string | null {
  return typeof claim === "string" && pattern.test(claim) ? claim : null;
}

/** Only a time until now, or a little later by the clock of the issuer. */
function pastIn(claim: unknown): EpochMs | null {
  const ms = typeof claim === "number" ? Math.floor(claim * 1000) : -1;
  return ms >= 0 && ms <= Date.now() + clocksDifferMs ? ms : null;
}

/** Some issuers send one group as a text. Any other form counts as absent, as a whole. */
function groupsIn(claim: unknown): ReadonlySet<string> | null {
  const list: unknown = typeof claim === "string" ? [claim] : claim;
  if (!Array.isArray(list) || list.length > groupsMax) return null;
  const groups = list.filter((group) => typeof group === "string" && group.length <= groupCharactersMax);
  return groups.length === list.length ? new Set(groups) : null;
}
