/**
 * Keys: issuing, changing, rotating and revoking them.
 *
 * Guarantees that each operation takes effect once, at the moment of its commit, and is in the
 * journal with everything that the audit needs to compute the key again, and without its secret. A
 * revoked key does not change. At most one old secret is valid.
 */
import { invariant } from "../errors.ts";
import { fieldOf } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import { factText } from "./fact-values.ts";
import {
  capsAfter,
  changeFact,
  newKeyOf,
  outcomeFact,
  replacedFact,
  unusedKey,
  zoneFor,
} from "./key-facts.ts";
import type { IssueOperation, KeyOperation, KeySettings, RevokeOperation } from "./operations.ts";
import type { IssueOutcome, KeyOutcome, RevokeOutcome } from "./outcomes.ts";
import { followLimits, scopesOf } from "./rates.ts";
import type { Refused } from "./refusals.ts";
import { type KeyAuthority, type KeyRow, keyColumns, noAuthority, works } from "./rows.ts";
import { opOf } from "./snapshot.ts";
import { earlier, type FoundAccount, type UnitOfWork } from "./unit-of-work.ts";
import { endOf } from "./windows.ts";

const authority = Object.keys(keyColumns).filter((field) => noAuthority.every((each) => each !== field));

export function hasSameAuthority(one: KeyAuthority, other: KeyAuthority): boolean {
  const [first, second] = [one, other].map((key) =>
    factText(Object.fromEntries(authority.map((field) => [field, fieldOf(key, field)]))),
  );
  return first === second;
}

export function changeKey(work: UnitOfWork, found: FoundAccount, operation: KeyOperation): KeyOutcome {
  const { account, times } = found;
  const { nowMs, atMs } = times;
  const read = work.key(operation.key);
  if (read === null || read.account !== account.id) return { kind: "key_not_found", key: operation.key };
  const fact = { subject: read.id, after: changeFact(operation.set) };
  const before = earlier(work, operation, fact);
  if (before?.kind === "replayed") return { kind: "changed", key: { ...read }, replayed: true };
  if (before !== null) return before;
  if (read.revokedMs !== null) return { kind: "key_revoked", key: read.id };
  if (operation.seen !== undefined && !hasSameAuthority(read, operation.seen)) return { kind: "key_changed" };
  const { caps: settings, rotation, ...set } = operation.set;
  const tooMany =
    set.expiresMs === undefined || works(read, atMs) ? null : tooManyWork(work, found, operation);
  if (tooMany !== null) return tooMany;
  // Its new secret would not be valid either.
  if (rotation !== undefined && read.expiresMs !== null && read.expiresMs <= atMs) {
    return { kind: "key_expired", key: read.id, expiresMs: read.expiresMs };
  }
  const zone = zoneFor(settings, found.plan?.timezone);
  const caps = settings === undefined ? read.caps : capsAfter(read.caps, settings, { zone, atMs });
  if ("kind" in caps) return caps;
  const key = work.keyToSet(operation.key);
  invariant(key !== null, "the key was read");
  const replaced = replacedFact(key, operation.set);
  // A debt of tokens follows the limit from this moment on.
  followLimits(scopesOf(account, null, key), nowMs);
  Object.assign(key, set, { caps });
  followLimits(scopesOf(account, null, key), nowMs);
  if (rotation !== undefined) rotate(key, rotation, atMs);
  work.post(found, {
    kind: "key",
    op: opOf(operation),
    by: operation.by,
    ...fact,
    before: replaced,
    outcome: outcomeFact(key, { timezone: zone, hasNewSecret: rotation !== undefined }),
  });
  // A copy, because later operations of the batch change the row.
  return { kind: "changed", key: { ...key }, replayed: false };
}

/** Refuses if as many keys work as may. */
function tooManyWork(
  work: UnitOfWork,
  { account, times }: FoundAccount,
  { workingMax: most }: Pick<KeyOperation, "workingMax">,
): Refused<"too_many_keys"> | null {
  // The keys are read for an operation with a limit alone.
  if (most === undefined) return null;
  const working = work.keysOf(account.id).filter((key) => works(key, times.atMs));
  return working.length >= most ? { kind: "too_many_keys", of: "working", most } : null;
}

function rotate(
  key: KeyRow,
  { hash, lastFour, overlap }: NonNullable<KeySettings["rotation"]>,
  atMs: EpochMs,
): void {
  key.oldHash = key.hash;
  key.oldUntilMs = overlap === null ? atMs : endOf(overlap, atMs);
  key.hash = hash;
  key.lastFour = lastFour;
}

/** Adds a key. A repetition after a lost answer finds it by its id and its secret. */
export function issueKey(work: UnitOfWork, found: FoundAccount, operation: IssueOperation): IssueOutcome {
  const { account } = found;
  const { row, creator, keysMax } = operation;
  invariant(row.id === operation.key && row.account === account.id, "the operation names its key");
  const existing = work.key(row.id);
  if (existing !== null) {
    const kind = existing.hash === row.hash ? "issued" : "key_exists";
    return { kind, key: { ...existing } };
  }
  const op = opOf(operation);
  const entry = op === null ? null : work.entry(op);
  if (entry !== null) return { kind: "operation_differs", account: account.id, entry };
  if (creator !== null) {
    const now = work.key(creator.id);
    if (now === null || !hasSameAuthority(now, creator)) return { kind: "key_changed" };
  }
  if (keysMax !== null && work.keysOf(account.id).length >= keysMax)
    return { kind: "too_many_keys", of: "all", most: keysMax };
  return tooManyWork(work, found, operation) ?? addKey(work, found, operation, op);
}

/** Adds a key that does not exist. */
function addKey(
  work: UnitOfWork,
  found: FoundAccount,
  { row, caps: settings, by }: Pick<IssueOperation, "row" | "caps" | "by">,
  op: string | null,
): IssueOutcome {
  const { atMs } = found.times;
  const zone = zoneFor(settings, found.plan?.timezone);
  const caps = capsAfter([], settings, { zone, atMs });
  if ("kind" in caps) return caps;
  const key: KeyRow = { ...row, createdMs: atMs, ...unusedKey, caps };
  work.addKey(key);
  const { id, account, hash, lastFour, ...set } = newKeyOf(row);
  work.post(found, {
    kind: "key",
    op,
    by,
    subject: id,
    after: changeFact({ ...set, ...(settings.length === 0 ? {} : { caps: settings }) }),
    outcome: outcomeFact(key, { timezone: zone, hasNewSecret: true }),
  });
  work.tell(found, "key.created", { key: row.id, name: row.name, by });
  return { kind: "issued", key: { ...key } };
}

export function revokeKey(work: UnitOfWork, found: FoundAccount, operation: RevokeOperation): RevokeOutcome {
  const read = work.key(operation.key);
  if (read === null || read.account !== found.account.id)
    return { kind: "key_not_found", key: operation.key };
  if (read.revokedMs !== null) return { kind: "revoked", key: { ...read }, replayed: true };
  const key = work.keyToSet(operation.key);
  invariant(key !== null, "the key was read");
  const { revokedMs } = key;
  key.revokedMs = found.times.atMs;
  work.post(found, {
    kind: "key",
    by: operation.by,
    subject: key.id,
    before: factText({ revokedMs }),
    after: factText({ revokedMs: key.revokedMs }),
  });
  work.tell(found, "key.revoked", { key: key.id, name: key.name, by: operation.by });
  return { kind: "revoked", key: { ...key }, replayed: false };
}
