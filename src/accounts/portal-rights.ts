/**
 * The rights of a key over keys in the portal, as rules over rows.
 *
 * Guarantees that no key gets more than it has: not by a new key, a change of itself or another
 * key, or the secret of a key that may do more. Such a key can only be renamed, narrowed and
 * revoked. The key of a front end may do more than all others.
 */

import { isDeepStrictEqual } from "node:util";
import { Refusal } from "../errors.ts";
import type { KeyCap } from "../ledger/cap-rows.ts";
import { covers, isSameCap } from "../ledger/caps.ts";
import { termOf } from "../ledger/fact-values.ts";
import type { AccountState, KeyAuthority, SettingRow, SomeSettings } from "../ledger/rows.ts";
import { endOf } from "../ledger/windows.ts";
import { defined } from "../objects.ts";
import { type EpochMs, microOf } from "../units.ts";
import type { KeyChange } from "./key-actions.ts";
import type { CapInput } from "./keys.ts";
import type { PersonKeys } from "./portal-viewer.ts";
import { invalidValue } from "./refusals.ts";

/** A change that a session can make: rights are the operator's. */
export type OwnKeyChange = Omit<KeyChange, "portal">;

/** A setting that is more than the key of a session has. */
interface Excess {
  param: string;
  message: string;
}

/** The settings of a key that say what its holder may do. */
type Right = keyof SettingRow & keyof KeyAuthority;

/** Returns for each right what is more than a key has. Undefined: the right stays. */
const excesses: {
  readonly [Name in Right]: (
    value: SomeSettings[Name],
    own: KeyAuthority[Name],
    param: string,
  ) => Excess | null;
} = {
  models: excessOfModels,
  expiresMs(value, own, param) {
    if (!isMore(value, own)) return null;
    const most = `${new Date(own ?? 0).toISOString()} or earlier, when the key that you signed in with expires`;
    return { param, message: `${param} must be ${most}.` };
  },
  requestsPerMinute: excessOfLimit,
  tokensPerMinute: excessOfLimit,
  concurrent: excessOfLimit,
  // No session sets it, and only a key that manages all acts on another one.
  portal: () => null,
};
const rights = Object.keys(excesses) as Right[];

/** Returns why a key cannot create keys; null if it can. */
export function whyNoNewKeys(
  { portal, caps }: Pick<KeyAuthority, "portal" | "caps">,
  state: AccountState,
): string | null {
  if (portal === "own") {
    return "This key manages only itself. The operator can let it manage the keys of its account.";
  }
  if (caps.length > 0) return "This key has a spending cap. A new key could spend more than that.";
  return state === "suspended" ? suspended : null;
}

/** A thief of a key who widens a key, or gets its secret, could use it after the suspension. */
const suspended = "The account is suspended.";

/** Refuses a key that cannot create keys. */
export function requireCreates(own: KeyAuthority, state: AccountState): void {
  const why = whyNoNewKeys(own, state);
  if (why !== null) throw notPermitted(why);
}

/**
 * Refuses a change of settings, of the key itself or another one, that the key may not make. Each
 * new setting must be within those of the key, and a change that widens anything must leave the
 * whole target within them: a wider target would otherwise get even more.
 */
export function requireChanges(
  own: KeyAuthority,
  state: AccountState,
  target: KeyAuthority,
  { name: _name, ...change }: OwnKeyChange,
): void {
  if (own.portal === "own") throw notPermitted("This key cannot change settings. It can be rotated.");
  const settings = defined(change);
  if (own.caps.length > 0 && Object.keys(settings).length > 0) {
    throw notPermitted(
      "This key has a spending cap, so it cannot change what keys may do. It can rename and revoke them.",
    );
  }
  requireWithin(own, settings);
  requireLower(target, settings);
  if (!widens(target, settings)) return;
  if (state === "suspended") throw notPermitted(suspended);
  const remedy = "Here it can be renamed, narrowed and revoked, and the operator can change it.";
  requireNoWider(own, { ...target, ...settings }, remedy);
}

/**
 * Refuses limits and models of a key that are more than it has. For people, who have no limits
 * themselves: what an operator has set on a key stays.
 */
export function requireTighter(target: KeyAuthority, change: OwnKeyChange): void {
  const excess = excessOf({ ...target, expiresMs: null }, change);
  if (excess === null) return;
  throw notPermitted(
    `${excess.param} of key ${target.id} can only be narrowed here. The operator can change it, or make another key.`,
  );
}

/** Refuses a new secret for a key that the key may not get. */
export function requireRotates(own: KeyAuthority, state: AccountState, target: KeyAuthority): void {
  if (target.id === own.id) return;
  if (own.portal === "own") throw notPermitted("This key manages only itself.");
  if (own.caps.length > 0) {
    throw notPermitted("This key has a spending cap, so it cannot get the secret of another key.");
  }
  if (state === "suspended") throw notPermitted(suspended);
  requireNoWider(own, target, "The operator, or a session of that key, can rotate it.");
}

export function requireRevokes(own: KeyAuthority): void {
  if (own.portal === "own") throw notPermitted("This key cannot revoke keys. The operator can.");
}

/** Refuses settings that are more than the key itself has. */
export function requireWithin(own: KeyAuthority, settings: SomeSettings): void {
  const excess = excessOf(own, settings);
  if (excess !== null) throw invalidValue(excess.param, excess.message);
}

/** Refuses a key that may do more than the key itself. */
function requireNoWider(
  own: KeyAuthority,
  key: SomeSettings & Pick<KeyAuthority, "id" | "actsFor">,
  remedy: string,
): void {
  if (key.actsFor !== null && key.id !== own.id) {
    throw notPermitted(`Key ${key.id} is that of a front end, and spends credits of many people. ${remedy}`);
  }
  const excess = excessOf(own, key);
  if (excess === null) return;
  throw notPermitted(
    `Key ${key.id} may do more than the key that you signed in with: ${excess.param}. ${remedy}`,
  );
}

/** Whether a change gives a key more than it has in any setting. */
function widens(target: KeyAuthority, { spendingCaps, ...settings }: OwnKeyChange): boolean {
  if (excessOf(target, settings) !== null) return true;
  return spendingCaps !== undefined && !target.caps.every((cap) => isKept(cap, spendingCaps));
}

/**
 * Returns a change with the caps that a holder sets. A cap that counts as one of the operator
 * stays the operator's, and without a time zone it keeps its zone. The others are the holder's.
 */
export function ofHolder({ caps }: KeyAuthority, change: OwnKeyChange): OwnKeyChange {
  if (change.spendingCaps === undefined) return change;
  const spendingCaps = change.spendingCaps.map((input) => {
    const kept = caps.find(
      (cap) => cap.byOperator && isSetting({ ...input, timezone: input.timezone ?? cap.timezone }, cap),
    );
    if (kept === undefined) return { ...input, byOperator: false };
    return { ...input, timezone: kept.timezone, byOperator: true };
  });
  return { ...change, spendingCaps };
}

/** Holders may only lower the amount of a cap that an operator has set. */
function requireLower(target: KeyAuthority, { spendingCaps }: OwnKeyChange): void {
  if (spendingCaps === undefined) return;
  const lost = target.caps.find((cap) => cap.byOperator && !isKept(cap, spendingCaps));
  if (lost === undefined) return;
  throw notPermitted(
    `The operator has set the cap "${lost.name}" of key ${target.id}. Here its credits can be lowered, and nothing else.`,
  );
}

/** Reports whether a list has the cap, with the same models and at most its amount. */
function isKept(cap: KeyCap, list: readonly CapInput[]): boolean {
  return list.some(
    (each) =>
      isSetting(each, cap) &&
      microOf(each.credits) <= cap.amountMicro &&
      isDeepStrictEqual([...(each.models ?? ["*"])].sort(), [...cap.models].sort()),
  );
}

/** Reports whether an input sets a cap that counts the same. */
function isSetting(input: CapInput, cap: KeyCap): boolean {
  // The zone of the plan is not known here.
  const { every, name = every, align = "opening", timezone = "" } = input;
  return isSameCap({ name, every, align, timezone }, cap);
}

function excessOf(own: KeyAuthority, settings: SomeSettings): Excess | null {
  for (const name of rights) {
    const excess = excessIn(name, own, settings);
    if (excess !== null) return excess;
  }
  return null;
}

function excessIn<Name extends Right>(name: Name, own: KeyAuthority, settings: SomeSettings): Excess | null {
  return excesses[name](settings[name], own[name], termOf(name));
}

function excessOfModels(models: readonly string[] = [], own: readonly string[], name: string): Excess | null {
  const at = models.findIndex((id) => !covers({ models: own }, id));
  if (at === -1) return null;
  const param = `${name}[${at}]`;
  return {
    param,
    message: `${param} must be a model of the key that you signed in with: ${own.join(", ")}.`,
  };
}

function excessOfLimit(value: number | null | undefined, own: number | null, param: string): Excess | null {
  if (!isMore(value, own)) return null;
  return { param, message: `${param} must be at most ${own}, the limit of the key that you signed in with.` };
}

/** Null is no limit. */
function isMore(value: number | null | undefined, limit: number | null): boolean {
  if (value === undefined || limit === null) return false;
  return value === null || value > limit;
}

/** Refuses an expiry after the longest life of a key of a person, and a key without an expiry. */
export function requireLife(
  { life }: PersonKeys,
  { expiresMs }: Pick<SomeSettings, "expiresMs">,
  nowMs: EpochMs,
): void {
  if (life === null || (typeof expiresMs === "number" && expiresMs <= endOf(life, nowMs))) return;
  const fault = expiresMs === undefined ? "is missing. It must be" : "must be";
  throw invalidValue(
    "expires_at",
    `expires_at ${fault} ${new Date(endOf(life, nowMs)).toISOString()} or earlier: keys of your plan end by then.`,
  );
}

/** Returns the rights of a new key: those of the key itself, if they are not given. */
export function inherited(own: KeyAuthority, settings: SomeSettings): SomeSettings {
  return Object.fromEntries(rights.map((name) => [name, settings[name] ?? own[name]]));
}

function notPermitted(message: string): Refusal {
  return new Refusal("not_permitted", message);
}
