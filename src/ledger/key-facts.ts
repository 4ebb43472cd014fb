/**
 * What the journal says about keys, in a form from which the audit computes them again: settings
 * as JSON, and of secrets the beginning of their SHA-256. Pure.
 */
import { defined } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import { type BudgetChange, rollBudget, ruleOfBudget, setBudget, unusedKey } from "./key-budget.ts";
import type { BudgetSettings, KeyOperation, NewKey } from "./operations.ts";
import type { KeyOutcome } from "./outcomes.ts";
import { type JournalRow, type KeyRow, type LimitRow, limitFields, limitsIn } from "./rows.ts";
import { isCalendarPeriod } from "./windows.ts";

/** Hexadecimal digits of the SHA-256 of a secret that the journal has. */
const digits = 32;

function secretFact(hash: string): string {
  return hash.slice(0, digits);
}

const revoked = "revoked";

export function revokedNote(key: string): string {
  return `${key} ${revoked}`;
}

/** Returns the fields alone that the creator of a key chooses. */
export function newKeyOf(row: NewKey): NewKey {
  const { id, account, hash, lastFour, name, models, expiresMs, portal, actsFor } = row;
  return { id, account, hash, lastFour, name, models, expiresMs, ...limitsIn(row), portal, actsFor };
}

interface NotedChange {
  key: string;
  /** `actsFor`: of a new key. */
  set: KeyOperation["set"] & Partial<Pick<NewKey, "actsFor">>;
}

/** Returns what an operation changes, without the secret. A repetition has the same text. */
export function settingsNote({ key, set }: NotedChange): string {
  const { name, models, expiresMs, budget, rotation, portal, actsFor } = set;
  const expires =
    expiresMs === undefined || expiresMs === null ? expiresMs : new Date(expiresMs).toISOString();
  const limits = Object.fromEntries(limitFields.map((name) => [name, set[name]]));
  const settings = {
    ...{ name, models, ...limits, expires },
    budget: budget && { micro: budget.amountMicro, ...budget.rule, byOperator: budget.byOperator },
    rotation: rotation && { overlap: rotation.overlap },
    portal,
    // Absent of a change, so that none has the text of a new key.
    actsFor,
  };
  return `${key} ${JSON.stringify(settings)}`;
}

/** Adds what the operation has led to: the zone of a budget by the calendar, and new secrets. */
export function withOutcome(
  note: string,
  { hash, oldUntilMs }: KeyRow,
  { budget, hasNewSecret }: { budget: BudgetChange; hasNewSecret: boolean },
): string {
  const zone = zoneOf(budget);
  const old = oldUntilMs === null ? "" : `, old until ${new Date(oldUntilMs).toISOString()}`;
  const secret = hasNewSecret ? ` secret ${secretFact(hash)}${old}` : "";
  return `${note}${zone === undefined ? "" : ` zone ${zone}`}${secret}`;
}

function zoneOf(budget: BudgetChange): string | undefined {
  return budget?.rule.align === "calendar" ? budget.rule.timezone : undefined;
}

const outcomePattern = /(?<=\})(?: zone ([\w+/-]+))?(?: secret ([0-9a-f]{32})(?:, old until (\S+))?)?$/;

export function withoutOutcome(note: string): string {
  return note.replace(outcomePattern, "");
}

/**
 * Completes a change of the budget by the parts that stay. The zone is that of the plan if none is
 * given.
 */
export function budgetAfter(
  planZone: string | undefined,
  key: KeyRow | null,
  budget: BudgetSettings | null | undefined,
): BudgetChange | Extract<KeyOutcome, { kind: "no_budget" | "no_calendar_period" }> {
  if (budget === undefined || budget === null) return budget;
  const before = key === null ? null : ruleOfBudget(key);
  const amountMicro = budget.amountMicro ?? key?.budgetMicro ?? null;
  const every = budget.rule?.every ?? before?.every;
  if (amountMicro === null || every === undefined) return { kind: "no_budget" };
  const align = budget.rule?.align ?? before?.align ?? "opening";
  if (align === "calendar" && !isCalendarPeriod(every)) return { kind: "no_calendar_period", every };
  const zoneBefore = before?.align === "calendar" ? before.timezone : undefined;
  const zone = budget.rule?.timezone ?? zoneBefore ?? planZone ?? "UTC";
  const rule = { every, align, timezone: align === "opening" ? "UTC" : zone };
  return { amountMicro, rule, byOperator: budget.byOperator ?? key?.budgetByOperator ?? true };
}

/** The settings of a note. */
interface NotedSettings extends Partial<LimitRow> {
  name?: string | null;
  models?: readonly string[];
  expires?: string | null;
  portal?: KeyRow["portal"];
  actsFor?: KeyRow["actsFor"];
  budget?: ({ micro?: number; byOperator?: boolean } & NonNullable<BudgetSettings["rule"]>) | null;
}

/**
 * Applies an entry to the keys of its account, of which the hashes are those of the journal.
 * Returns what is wrong with it, or null.
 */
export function applyKeyFact(keys: Map<string, KeyRow>, { account, atMs, note }: JournalRow): string | null {
  const [id = "", ...rest] = (note ?? "").split(" ");
  const known = keys.get(id);
  const text = rest.join(" ");
  if (text === revoked) {
    if (known === undefined || known.revokedMs !== null) return "revokes a key that is not there";
    known.revokedMs = atMs;
    return null;
  }
  const [, zone, secret, oldUntil] = outcomePattern.exec(note ?? "") ?? [];
  const settings = settingsIn(withoutOutcome(text));
  if (settings === null) return "is no change of a key";
  if (known === undefined && secret === undefined) return "changes a key that is not there";
  const key: KeyRow = known ?? { ...blankKey, id, account, createdMs: atMs };
  keys.set(id, key);
  const { expires, budget, ...set } = settings;
  Object.assign(key, set);
  if (expires !== undefined) key.expiresMs = expires === null ? null : Date.parse(expires);
  if (budget !== undefined) {
    const { micro, byOperator, ...rule } = budget ?? {};
    const change =
      budget === null
        ? null
        : budgetAfter(zone, key, { ...defined({ amountMicro: micro, byOperator }), rule });
    if (change !== null && change !== undefined && "kind" in change) return "sets a budget without a period";
    if (zoneOf(change) !== zone) return "has another zone than its budget";
    setBudget(key, change, atMs);
  }
  if (secret !== undefined) {
    key.oldHash = known === undefined ? null : key.hash;
    key.oldUntilMs = oldUntil === undefined ? null : Date.parse(oldUntil);
    key.hash = secret;
  }
  return null;
}

function settingsIn(text: string): NotedSettings | null {
  try {
    const { rotation: _, ...settings } = JSON.parse(text);
    return settings;
  } catch {
    return null;
  }
}

const blankKey: Omit<KeyRow, "id" | "account" | "createdMs"> = {
  ...unusedKey,
  hash: "",
  lastFour: "",
  name: null,
  models: [],
  ...limitsIn({}),
  expiresMs: null,
  portal: "own",
  actsFor: null,
};

/** The fields of a key that its facts determine, as texts. Both rows are in one window. */
export function keyFactsOf(key: KeyRow, atMs: EpochMs): (readonly [field: string, value: string])[] {
  const row = { ...key };
  rollBudget(row, atMs);
  const { name, models, expiresMs, portal } = row;
  const { createdMs, revokedMs, hash, oldHash, oldUntilMs } = row;
  const { budgetMicro, budgetEvery, budgetAlign, budgetTimezone, budgetAnchorMs, budgetFromMs } = row;
  const { budgetUntilMs, budgetSpentMicro, budgetByOperator, actsFor } = row;
  const facts = {
    ...{ name, models: models.join(" "), ...limitsIn(row), expiresMs, portal },
    actsFor: actsFor && JSON.stringify(actsFor),
    ...{
      createdMs,
      revokedMs,
      secret: secretFact(hash),
      oldSecret: oldHash && secretFact(oldHash),
      oldUntilMs,
    },
    ...{ budgetMicro, budgetEvery, budgetAlign, budgetTimezone, budgetAnchorMs, budgetFromMs },
    ...{ budgetUntilMs, budgetSpentMicro, budgetByOperator },
  };
  return Object.entries(facts).map(
    ([field, value]) => [field, value === null ? "none" : String(value)] as const,
  );
}
