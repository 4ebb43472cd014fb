/**
 * The log and the journals of accounts in sentences: who changed what. The API, the command line
 * and the pages have them from here. Sentences have no full stop. Pages bundle this file.
 */
import type { changeKinds } from "../store/change-log.ts";
import type { ListedKind } from "../store/store.ts";
import { exactCredits, grouped, shortTime } from "../units.ts";
import { partOf } from "./field.ts";

type Values = Readonly<Record<string, unknown>>;

/** A change as its JSON is. `by_name`, `subject_name`: the names of those that have one. */
export interface ToldChange {
  kind: string;
  by: string;
  by_name: string | null;
  account: string | null;
  subject: string | null;
  subject_name: string | null;
  bucket: string | null;
  amount_micro: number | null;
  before: Values | null;
  after: Values | null;
  outcome: Values | null;
}

/** A name in a sentence, of which a page makes a link. */
interface Named {
  of: "actor" | "account" | "key" | "person" | "link" | "request";
  id: string;
  text: string;
}
export type Part = string | Named;

/** Joins texts and parts. */
function say(texts: TemplateStringsArray, ...between: (Part | readonly Part[])[]): Part[] {
  return texts.flatMap((text, n) => [text, ...[between[n] ?? []].flat()]).filter((part) => part !== "");
}

export function textOf(parts: readonly Part[]): string {
  return parts.map((part) => (typeof part === "string" ? part : part.text)).join("");
}

export function sentenceOf(change: ToldChange): Part[] {
  return capitalized(isKind(change.kind) ? kinds[change.kind].tell(change) : changed("something")(change));
}

function capitalized([first = "", ...rest]: readonly Part[]): Part[] {
  const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
  // The name of a person or a program stays as it is.
  if (typeof first !== "string")
    return [/^(?:the|somebody) /.test(first.text) ? { ...first, text: upper(first.text) } : first, ...rest];
  return [upper(first), ...rest];
}

type Kind = ListedKind | (typeof changeKinds)[number];

function isKind(text: string): text is Kind {
  return Object.hasOwn(kinds, text);
}

interface ToldKind {
  /** What many of them are in one sentence: a noun, and what was done. */
  many: readonly [noun: string, done: string];
  tell(change: ToldChange): Part[];
}

const kinds: Readonly<Record<Kind, ToldKind>> = {
  open: {
    many: ["account", "opened"],
    tell: (change) => say`${by(change)} opened account ${account(change)} on plan ${value(change, "plan")}`,
  },
  window: {
    many: ["refill", "came"],
    tell: (change) =>
      say`${change.bucket ?? ""} credits of ${account(change)} were refilled to ${credits(change)} by plan ${value(change, "plan")}`,
  },
  plan: { many: ["plan", "changed"], tell: tellPlan },
  change: {
    many: ["amount", "changed with a plan"],
    tell: (change) =>
      say`${change.bucket ?? ""} credits of ${account(change)} ${Number(change.amount_micro) < 0 ? "fell" : "rose"} by ${credits(change)} with the change of the plan`,
  },
  payment: {
    many: ["payment", "added"],
    tell: (change) =>
      say`${by(change)} added ${credits(change)} to ${account(change)}, paid for by ${change.subject ?? ""}`,
  },
  promotion: {
    many: ["promotion", "given"],
    tell: (change) =>
      say`${by(change)} gave ${account(change)} ${credits(change)}${until(change)}${reason(change)}`,
  },
  memo: {
    many: ["memo", "given"],
    tell: (change) =>
      say`${by(change)} gave ${account(change)} ${credits(change)} for request ${named("request", change)}${until(change)}${reason(change)}`,
  },
  adjust: {
    many: ["correction", "made"],
    tell: (change) =>
      say`${by(change)} took ${exactCredits(Math.abs(change.amount_micro ?? 0))} promotional credits from ${account(change)}${reason(change)}`,
  },
  refund: { many: ["refund", "made"], tell: tellRefund },
  suspend: {
    many: ["account", "suspended"],
    tell: (change) => say`${by(change)} suspended account ${account(change)}`,
  },
  resume: {
    many: ["account", "resumed"],
    tell: (change) => say`${by(change)} resumed account ${account(change)}`,
  },
  end: {
    many: ["end date", "set"],
    tell: (change) =>
      say`${by(change)} changed the end of account ${account(change)}: ${moment(change.before, "ends_at")} → ${moment(change.after, "ends_at")}`,
  },
  close: {
    many: ["account", "closed"],
    tell: (change) => say`${by(change)} closed account ${account(change)}`,
  },
  key: { many: ["key", "made or changed"], tell: tellKey },
  charge: {
    many: ["request", "charged"],
    tell: (change) => {
      const stopped = change.by === "service" ? [] : say` until ${by(change)} stopped it`;
      return say`request ${named("request", change)} cost ${account(change)} ${credits(change)}${stopped}`;
    },
  },
  contact: {
    many: ["contact", "changed"],
    tell: (change) => say`${by(change)} changed the contact of ${account(change)}${values(change)}`,
  },
  operator_key: {
    many: ["operator key", "made or ended"],
    tell: (change) => {
      const name = change.subject_name ?? change.subject ?? "";
      if (change.after === null) return say`${by(change)} ended operator key ${name}`;
      const { after } = change;
      return say`${by(change)} made operator key ${name} with the role ${value(change, "role")}, until ${moment(after, "expires_at")}`;
    },
  },
  person: { many: ["change", "made to people"], tell: tellPerson },
  invitation: {
    many: ["invitation", "made"],
    tell: (change) =>
      say`${by(change)} invited the holder of ${account(change)} to the portal, until ${moment(change.after, "expires_at")}`,
  },
  link: { many: ["change", "made to links"], tell: tellLink },
  plans: { many: ["plans section", "applied"], tell: tellPlans },
  clock: {
    many: ["time", "accepted"],
    tell: (change) =>
      say`${by(change)} let the time of the ledger stand, ${moment(change.after, "ledger_at")}, with the clock at ${moment(change.after, "clock_at")}`,
  },
  reload: {
    many: ["reload", ""],
    tell: (change) => say`${by(change)} reloaded the configuration: ${reloadText(change.after ?? {})}`,
  },
  sign_in: {
    many: ["sign-in", ""],
    tell: (change) => {
      const place = value(change, "listener") === "portal" ? "portal" : "console";
      return say`${by(change)} signed in to the ${place}`;
    },
  },
};

/** Names the actor. A program and a holder are called what they are. */
function by({ by: id, by_name: name }: ToldChange): Named {
  const [role = "", ...rest] = id.split(":");
  const shown = name ?? rest.join(":");
  const texts: Readonly<Record<string, string>> = {
    owner: "the owner",
    service: "the service",
    "service:sign_in": "the rules of sign-in",
    "service:new_link": "somebody who asked for a new link",
    command_line: `${shown} (command line)`,
    operator_key: `${shown} (operator key)`,
    key: `the holder of key ${shown}`,
    link: `the link ${shown}`,
    person: shown,
  };
  return { of: "actor", id, text: texts[id] ?? texts[role] ?? id };
}

function account({ account: id }: ToldChange): Part {
  return id === null ? "an account" : { of: "account", id, text: id };
}

function named(of: Named["of"], { subject, subject_name: name }: ToldChange): Part {
  return subject === null ? "" : { of, id: subject, text: name ?? subject };
}

function credits({ amount_micro: micro }: Pick<ToldChange, "amount_micro">): string {
  const amount = exactCredits(Math.abs(micro ?? 0));
  return `${amount} ${amount === "1" ? "credit" : "credits"}`;
}

/** A value that the change has set, or has ended. Data that was erased has none. */
function value({ before, after }: ToldChange, name: string): string {
  const found = partOf(after ?? before, name) ?? null;
  return found === null ? "none" : String(found);
}

function moment(values: Values | null, name: string): string {
  const at = partOf(values, name);
  return typeof at === "string" ? shortTime(at) : "never";
}

/** What a change has replaced and set: `: plan: starter → pro`. Amounts are in credits. */
function values({ before, after }: Pick<ToldChange, "before" | "after">): string {
  const texts = Object.keys({ ...before, ...after }).flatMap((name) => {
    const [old, now] = [before, after].map((each) => shownValue(name, each?.[name]));
    return old === now ? [] : [`${name.replace(/_micro$/, "")}: ${old} → ${now}`];
  });
  return texts.length === 0 ? "" : `: ${texts.join(", ")}`;
}

function shownValue(name: string, value: unknown): string {
  if (value === null || value === undefined) return "none";
  if (name.endsWith("_micro")) return exactCredits(Number(value));
  if (name.endsWith("_at") && typeof value === "string") return shortTime(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function until({ after }: ToldChange): string {
  return partOf(after, "ends_at") == null ? "" : ` until ${moment(after, "ends_at")}`;
}

function reason({ after }: ToldChange): string {
  const text = partOf(after, "reason");
  return typeof text === "string" ? `: ${text}` : "";
}

function changed(what: string) {
  return (change: ToldChange) => say`${by(change)} changed ${what}${values(change)}`;
}

function tellPlan(change: ToldChange): Part[] {
  const [old, plan] = [partOf(change.before, "plan"), value(change, "plan")];
  const who = account(change);
  if (change.by === "service") return say`the plan of ${who} changed: ${String(old)} → ${plan}`;
  if (value(change, "at") !== "refresh")
    return say`${by(change)} changed the plan of ${who}: ${String(old)} → ${plan}`;
  const next = partOf(change.before, "next_plan");
  if (old === plan && typeof next === "string")
    return say`${by(change)} cancelled the change of ${who} from ${plan} to ${next}`;
  return say`${by(change)} changed the plan of ${who} at its next refresh: ${String(old)} → ${plan}`;
}

/** Running requests may have held a part of what was asked for. */
function tellRefund(change: ToldChange): Part[] {
  const takenMicro = Math.abs(change.amount_micro ?? 0);
  const askedMicro = partOf(change.after, "amount_micro");
  const isPart = typeof askedMicro === "number" && askedMicro !== takenMicro;
  const taken = isPart
    ? `${exactCredits(takenMicro)} of ${exactCredits(askedMicro)} credits`
    : credits(change);
  return say`${by(change)} took back ${taken} of payment ${change.subject ?? ""} from ${account(change)}${reason(change)}`;
}

function tellKey(change: ToldChange): Part[] {
  const { before, after, outcome } = change;
  const name = change.subject_name ?? partOf(before === null ? after : null, "name");
  const text = typeof name === "string" ? name : change.subject;
  const key: Part[] = [
    change.subject === null ? "" : { of: "key", id: change.subject, text: text ?? "" },
    ...say` of ${account(change)}`,
  ];
  if (before === null) return say`${by(change)} made key ${key}`;
  if (partOf(after, "revoked_at") !== undefined) return say`${by(change)} revoked key ${key}`;
  const { rotation, ...set } = after ?? {};
  const rest = { before, after: set };
  if (rotation === undefined) return say`${by(change)} changed key ${key}${values(rest)}`;
  const isKept = partOf(rotation, "overlap") !== null;
  const old = isKept ? `works until ${moment(outcome, "old_until_at")}` : "has ended";
  return say`${by(change)} gave key ${key} a new secret, and the old one ${old}${values(rest)}`;
}

function tellPerson(change: ToldChange): Part[] {
  const { after } = change;
  const person = named("person", change);
  const [suspended, erased] = ["suspended", "erased"].map((name) => partOf(after, name));
  if (erased === true) return say`${by(change)} erased the data of ${person}`;
  if (suspended !== undefined)
    return say`${by(change)} ${suspended === true ? "suspended" : "resumed"} ${person}`;
  if (partOf(after, "account") !== undefined)
    return say`${by(change)} linked ${person} to ${account(change)}`;
  return say`${by(change)} changed ${person}${values(change)}`;
}

function tellLink(change: ToldChange): Part[] {
  const link = named("link", change);
  if (partOf(change.after, "rotated") === true) return say`${by(change)} gave link ${link} a new address`;
  if (partOf(change.after, "ended") === true) return say`${by(change)} ended link ${link}`;
  if (change.before !== null) return say`${by(change)} changed link ${link}${values(change)}`;
  return say`${by(change)} made link ${link} with ${value(change, "seats")} seats on plan ${value(change, "plan")}`;
}

function tellPlans(change: ToldChange): Part[] {
  const [before, after] = [change.before, change.after].map((each) => valuesIn(partOf(each, "plans")));
  const texts = Object.keys({ ...before, ...after }).flatMap((id) => {
    const [old, now] = [before?.[id], after?.[id]];
    if (old === now) return [];
    if (now === undefined) return [`${id} is retired`];
    return [old === undefined ? `${id} is offered` : `${id} version ${old} → ${now}`];
  });
  const list = texts.length === 0 ? ", which are as before" : `: ${texts.join(", ")}`;
  return say`${by(change)} applied the plans${list}`;
}

function valuesIn(value: unknown): Values {
  return typeof value === "object" && !Array.isArray(value) ? { ...value } : {};
}

/** `models` has lists inside, and the others are lists. */
function reloadText({ models, needsRestart, ...others }: Values): string {
  const ofModels = Object.entries(valuesIn(models)).map(([name, list]) => [`models ${name}`, list] as const);
  const lists = [...ofModels, ...Object.entries(others), ["after a restart", needsRestart] as const];
  const texts = lists.flatMap(([name, list]) =>
    Array.isArray(list) && list.length > 0 ? [`${name}: ${list.join(", ")}`] : [],
  );
  return texts.join("; ") || "nothing has changed";
}

/** Changes of one actor that follow each other as those of a program do. */
interface ChangeGroup<Change> {
  /** What all of them are. Null: it is one change. */
  title: Part[] | null;
  changes: Change[];
}

/** A change belongs to the one before it of the same actor, within this time. */
const togetherMs = 10_000;
/** Fewer changes, and those of which most are of other kinds, are told one by one. */
const togetherMin = 5;

/** Groups a list in the order of time. A group stands where its first change does. */
export function changeGroups<Change extends ToldChange & { at: string }>(
  changes: readonly Change[],
): ChangeGroup<Change>[] {
  const latest = new Map<string, Change[]>();
  const found = changes.map((change) => {
    const before = latest.get(change.by) ?? [];
    const passedMs = Date.parse(change.at) - Date.parse(before.at(-1)?.at ?? "");
    const group = Math.abs(passedMs) <= togetherMs ? before : [];
    group.push(change);
    latest.set(change.by, group);
    return { change, group };
  });
  return found.flatMap(({ change, group }): ChangeGroup<Change>[] => {
    const { length } = group;
    const isRun = length >= togetherMin && length >= 2 * new Set(group.map(({ kind }) => kind)).size;
    if (!isRun) return [{ title: null, changes: [change] }];
    return change === group[0] ? [{ title: titleOf(group), changes: group }] : [];
  });
}

/** `Ada made 80 changes: 40 accounts opened, 40 promotions given (20,000 credits)`. */
function titleOf(changes: readonly ToldChange[]): Part[] {
  const [first] = changes;
  const ofKinds = Map.groupBy(changes, ({ kind }) => kind);
  const texts = [...ofKinds].map(([kind, all]) => {
    const [noun, done] = isKind(kind) ? kinds[kind].many : ["change", `of ${kind}`];
    const amount_micro = all.reduce((sum, each) => sum + (each.amount_micro ?? 0), 0);
    const amount = amount_micro === 0 ? "" : ` (${credits({ amount_micro })})`;
    return `${grouped(all.length)} ${noun}${all.length === 1 ? "" : "s"} ${done}`.trimEnd() + amount;
  });
  const who = first === undefined ? [] : by(first);
  return capitalized(say`${who} made ${grouped(changes.length)} changes: ${texts.join(", ")}`);
}
