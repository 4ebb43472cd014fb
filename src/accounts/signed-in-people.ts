/** Questions of sessions about people who have signed in with OpenID Connect. */

import type { Actor, OperatorRole } from "../actors.ts";
import type { FoundHolder, PersonRow } from "../store/people.ts";
import type { SessionRow } from "../store/sessions.ts";
import type { SessionSecrets } from "./sessions.ts";

/** The actor in a session of an operator, as of this request. */
export interface OperatorIdentity {
  actor: Actor;
  /** Null: the session began with the operator token. */
  person: PersonRow | null;
}

/** Asks which role a person has by the present configuration. */
export interface PersonRoles {
  roleNow(person: PersonRow): OperatorRole | null;
}

export interface SignedInPeople {
  /** Returns who a person is now. Null: the person has no role any more. */
  operatorOf(session: SessionRow, secrets: SessionSecrets): Promise<OperatorIdentity | null>;
  /** Returns the role of a person. Null: none. */
  roleOf(id: string): Promise<OperatorRole | null>;
  /** Returns which of the people have a role. */
  operatorsAmong(ids: readonly string[]): Promise<ReadonlySet<string>>;
  /** Returns those of the people who may see their accounts, with the accounts. */
  holdersAmong(ids: readonly string[]): Promise<readonly FoundHolder[]>;
}

/** Nobody signs in with OpenID Connect. */
export const noIssuerPeople: SignedInPeople = {
  operatorOf: async () => null,
  roleOf: async () => null,
  operatorsAmong: async () => new Set(),
  holdersAmong: async () => [],
};
