/**
 * Actors and their roles. Every change names its actor as `by`, in the journal and
 * elsewhere. Pages bundle this file.
 */

/** Each role may do what those before it may do. */
export const operatorRoles = ["viewer", "support", "operator", "owner"] as const;
export type OperatorRole = (typeof operatorRoles)[number];

/** `holder`: of a key, in the portal. It is no step of the operators' roles. */
export type Role = "holder" | OperatorRole;

/** The actor of changes for which nobody has asked. */
export const service = "service";

export interface Actor {
  /**
   * `owner` (the operator token), `operator_key:ID`, `person:ID`, `key:ID` (its holder, in the
   * portal), `command_line:USER`, `service`, or `service:sign_in` (its rules about people).
   */
  by: string;
  role: Role;
  /** The maker of the key. All keys of a maker share one allowance. Absent: no key. */
  maker?: string;
  /** This person has not shown just now who they are. Absent: the actor is no person. */
  isStale?: boolean;
}

/** The operator token. */
export const owner: Actor = { by: "owner", role: "owner" };

/** Names the user of a command, in percent-encoding. Only the operator token may send it. */
export const userHeader = "x-inkwell-user";

/**
 * A user of the command line. The operator token acts for them, so they may do everything.
 */
export function commandLine(user: string): Actor {
  return { by: `command_line:${user}`, role: "owner" };
}

/** Reads for others. Each change is made as one of them. */
export const nobody: Actor = { by: "nobody", role: "viewer" };

/** The issuer of the people behind a front end, for their rows. */
export function issuerOfFrontEnd(name: string): string {
  return `front_end:${name}`;
}

export function isBehindFrontEnd({ issuer }: { issuer: string }): boolean {
  return issuer.startsWith(issuerOfFrontEnd(""));
}

export const keyHolder = (keyId: string): Actor => ({ by: `key:${keyId}`, role: "holder" });

export function hasRole(role: Role, needed: Role): boolean {
  if (role === "holder" || needed === "holder") return role === needed;
  return operatorRoles.indexOf(role) >= operatorRoles.indexOf(needed);
}

/** Null: no role. */
export function isHigherRole(role: OperatorRole, than: OperatorRole | null): boolean {
  return than === null || !hasRole(than, role);
}

/** Returns the role that may do the least. */
export function lowerRole(one: OperatorRole, other: OperatorRole): OperatorRole {
  return hasRole(one, other) ? other : one;
}
