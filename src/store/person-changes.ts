/**
 * What the list of changes says about people. Each change has an id of its own, so that requests
 * at the same time record it once.
 */
import type { OperatorRole } from "../actors.ts";
import type { EpochMs } from "../units.ts";
import { type ChangeLogRow, changeLogRow } from "./change-log.ts";
import type { PersonRow } from "./people.ts";

interface Change {
  by: string;
  atMs: EpochMs;
  /** In whose changes the list has it too. */
  account?: string;
}

/**
 * Sign-ins at the same time have read the same last one. Those that follow each other within a
 * millisecond differ in the roles.
 */
export function roleChange(
  { id, seenMs }: PersonRow,
  before: OperatorRole | null,
  role: OperatorRole | null,
  change: Change,
): ChangeLogRow {
  const name = `${id}:role:${seenMs}:${before}:${role}`;
  return personChange(name, id, change, { role: before }, { role });
}

/** Each issuer moves a person once. */
export function moveChange(id: string, from: string, to: string, change: Change): ChangeLogRow {
  return personChange(`${id}:moved:${from}`, id, change, { issuer: from }, { issuer: to });
}

/** A person gets an account once. */
export function linkChange(id: string, account: string, change: Change): ChangeLogRow {
  return personChange(`${id}:account`, id, { ...change, account }, { account: null }, { account });
}

/** `nowMs`: null ends the suspension. */
export function suspensionChange(
  { id, suspendedMs }: PersonRow,
  nowMs: EpochMs | null,
  change: Change,
): ChangeLogRow {
  const suspended = nowMs !== null;
  const name = suspended ? `${id}:suspended:${nowMs}` : `${id}:resumed:${suspendedMs}`;
  return personChange(name, id, change, { suspended: !suspended }, { suspended });
}

/** A person is erased once. It says nothing about what was erased. */
export function eraseChange(id: string, change: Change): ChangeLogRow {
  return personChange(`${id}:erased`, id, change, { erased: false }, { erased: true });
}

function personChange(
  id: string,
  subject: string,
  change: Change,
  before: object,
  after: object,
): ChangeLogRow {
  return changeLogRow({ id, kind: "person", subject, ...change, before, after });
}
