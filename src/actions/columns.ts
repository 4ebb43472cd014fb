/**
 * The fields of the objects that people see: what they are called, and what they are. The tables
 * and lists of facts of the command line and of the pages are made from it.
 *
 * Pages bundle this file.
 */

import type { planLimits } from "../accounts/plan-limits.ts";
import { isBehindFrontEnd } from "../actors.ts";
import type { EpochMs } from "../units.ts";
import { partOf } from "./field.ts";
import type { makeKey } from "./keys.ts";

const numberKinds = ["count", "number", "price", "credits", "change", "ms"] as const;

/**
 * A `count` has separators, a `number` has none. `price`: of a million tokens. `credits` are
 * micro-credits, and a `change` of them has a sign.
 */
export type Kind = "text" | "code" | "state" | "time" | "list" | (typeof numberKinds)[number];

/** `head`: title on the command line, if it has another one. */
type ShownField = readonly [title: string, kind?: Kind, head?: string];

/** By their names in the JSON of the object. A name with dots leads to a field inside. */
type ShownFields = Readonly<Record<string, ShownField>>;

const id = ["Account"] as const;
const left = ["Credits left", "count"] as const;
const started = ["Started", "time"] as const;

const ofRequest = { account: id, key: ["Key", "code"], model: ["Model"] } as const;
const request = { request_id: ["Request", "code"], ...ofRequest } as const;

const tokens = {
  prompt_tokens: ["Prompt tokens", "count", "Prompt"],
  cached_tokens: ["Cached tokens", "count", "Cached"],
  completion_tokens: ["Answer tokens", "count", "Completion"],
} as const;

const costs = {
  cost_micro: ["Cost in credits", "credits", "Credits"],
  base_micro: ["Base", "credits"],
  overage_micro: ["Overage", "credits"],
  additional_micro: ["Additional", "credits"],
} as const;

const contact = { owner: ["Owner"], email: ["E-mail"], external_id: ["External id"] } as const;

/** Each setting of a key is shown, limits together. */
type KeySettings = keyof (typeof makeKey)["input"];
type ShownSetting = Exclude<KeySettings, "operation_id" | keyof typeof planLimits> | "limits";

export const shown = {
  account: {
    id,
    plan: ["Plan"],
    next_plan: ["Plan from the next refresh", "text", "Next plan"],
    state: ["State", "state"],
    ends_at: ["Closes", "time"],
    created_at: ["Opened", "time", "Created"],
    ...contact,
    note: ["Note"],
    balance_low_mail: ["Mail about low credits"],
    balance_cap_mail: ["Mail about spending caps"],
    balance_exhausted_mail: ["Mail when no credits are left"],
    key_expiring_mail: ["Mail before a key expires"],
    invitation: ["Invited", "state"],
    credits: left,
    "balance.balances.total.credits": left,
    "balance.balances.base.credits": ["Base", "count"],
    "balance.balances.overage.credits": ["Overage", "count"],
    "balance.balances.additional.credits": ["Additional", "count"],
  },
  rowResult: {
    line: ["Line", "number"],
    account: id,
    result: ["Result", "state"],
    text: ["What"],
  },
  key: {
    id: ["Id"],
    account: id,
    last_four: ["Secret", "code", "Key"],
    name: ["Name"],
    revoked_at: ["State", "state"],
    portal: ["In the portal"],
    acts_for: ["Front end"],
    spending_caps: ["Spending caps", "text", "Caps left"],
    limits: ["Limits"],
    models: ["Models", "list"],
    created_at: ["Created", "time"],
    expires_at: ["Expires", "time"],
    last_used_at: ["Last used", "time"],
    old_secret_until: ["Old secret until", "time"],
  } satisfies Record<ShownSetting, ShownField> & ShownFields,
  request,
  refusedRequest: {
    at: ["Time", "time"],
    refused_by: ["Because of"],
    message: ["Why, and what to do"],
    ...request,
  },
  /** Of this process, of another one, and of the holder of a key: their times have three names. */
  runningRequest: {
    ...request,
    state: ["State", "state"],
    since: ["Runs for", "time"],
    created_at: started,
    started_at: started,
    ...tokens,
    held_micro: ["Held credits", "credits", "Held"],
  },
  receipt: {
    finished_at: ["Finished", "time"],
    ...request,
    ending: ["Ending", "state"],
    ...tokens,
    ...costs,
  },
  usageSum: {
    day: ["Day"],
    hour: ["Hour", "time"],
    ...ofRequest,
    ...contact,
    final: ["State"],
    requests: ["Requests", "count"],
    ...tokens,
    ...costs,
    paid_money: ["Paid in money", "number", "Money"],
  },
  journalEntry: {
    seq: ["Number", "number"],
    at: ["Time", "time"],
    bucket: ["Bucket"],
    amount_micro: ["Credits", "change"],
    sentence: ["Change"],
  },
  change: { at: ["Time", "time"], sentence: ["Change"] },
  operatorKey: {
    id: ["Id", "code"],
    name: ["Name"],
    role: ["Role"],
    made_by: ["Made by"],
    last_four: ["Secret", "code", "Key"],
    ended_at: ["State", "state"],
    expires_at: ["Expires", "time"],
    last_used_at: ["Last used", "time"],
  },
  session: {
    created_at: ["Begun", "time"],
    used_at: ["Last used", "time"],
    expires_at: ["Ends", "time"],
    present: ["This one"],
  },
  person: {
    id: ["Id", "code"],
    name: ["Name"],
    email: ["E-mail"],
    role: ["Role"],
    account: id,
    seen_at: ["Last sign-in", "time"],
    suspended_at: ["State", "state"],
  },
  link: {
    id: ["Id", "code"],
    name: ["Name"],
    plan: ["Plan"],
    state: ["State", "state"],
    taken: ["Taken", "count"],
    seats: ["Seats", "count"],
    ends_at: ["Ends", "time"],
    domain: ["Domain"],
    accounts_end_at: ["Accounts close", "time"],
    made_by: ["Made by"],
    created_at: ["Created", "time"],
  },
  linkAccount: {
    account: id,
    name: ["Name"],
    joined_at: ["Joined", "time"],
    state: ["State", "state"],
    used: ["Used"],
  },
  /** As it is, and its changes in a month. */
  payment: {
    payment_id: ["Payment"],
    account: id,
    at: ["Time", "time"],
    amount_micro: ["Credits", "credits"],
    left_before_micro: ["Left before", "credits"],
    added_micro: ["Added", "credits"],
    spent_micro: ["Spent", "credits"],
    refunded_micro: ["Refunded", "credits"],
    left_micro: ["Left", "credits"],
  },
  finding: {
    kind: ["Kind"],
    id: ["Id", "code"],
    account: id,
    name: ["Name"],
    email: ["E-mail"],
    detail: ["Detail"],
    amount_micro: ["Credits", "credits"],
    at: ["Time", "time"],
  },
  eventEndpoint: {
    name: ["Endpoint"],
    state: ["State", "state"],
    pending: ["Waiting", "count"],
    dead: ["Dead", "count"],
    failing_accounts: ["Failing accounts", "count"],
    next_attempt_at: ["Next attempt", "time"],
    problem: ["Last failure", "text", "Failure"],
  },
  eventDelivery: {
    at: ["Time", "time"],
    type: ["Event"],
    account: id,
    journal_number: ["Journal number", "number", "Number"],
    state: ["State", "state"],
    attempts: ["Attempts", "count"],
    last_attempt_at: ["Last attempt", "time"],
    next_attempt_at: ["Next attempt", "time"],
    status: ["Status", "number"],
    answer: ["Answer"],
    event_id: ["Id", "code"],
  },
  settingChange: { setting: ["Setting"], before: ["Before"], after: ["After"] },
  plan: {
    id: ["Plan"],
    version: ["Version", "number"],
    offered: ["State"],
    accounts: ["Accounts", "count"],
    created_at: ["Since", "time", "Created"],
    base: ["Base", "count"],
    overage: ["Overage", "count"],
    spending_caps: ["Spending caps"],
    models: ["Models", "list"],
  },
  model: {
    id: ["Model"],
    state: ["State", "state"],
    context_window: ["Context", "count"],
    max_output_tokens: ["Longest answer", "count"],
    parallel: ["Parallel", "count"],
    "pricing.prompt": ["Prompt", "price"],
    "pricing.cached_prompt": ["Cached prompt", "price", "Cached"],
    "pricing.completion": ["Answer", "price", "Completion"],
    "load.running": ["Running", "count"],
    "load.waiting": ["Waiting", "count"],
    "load.paused": ["Paused", "count"],
    "last_day.requests": ["Requests since start (24 h)", "count"],
    "last_day.errors": ["Failed", "count"],
    "last_day.tokens_per_second.median": ["Tokens/s", "number"],
    "last_day.first_token_ms.median": ["First token", "ms"],
    servers: ["Servers"],
    source: ["Source", "list"],
    file: ["File"],
  },
  node: {
    id: ["Node"],
    version: ["Version"],
    started_at: started,
    seen_at: ["Seen", "time"],
    differs: ["Differs in", "list"],
  },
  job: {
    name: ["Job"],
    every_ms: ["Every", "ms"],
    state: ["State", "state"],
    last_success_at: ["Last success", "time"],
    last_error: ["Last error"],
  },
  recentError: {
    last_at: ["Last", "time"],
    level: ["Level", "state"],
    message: ["Message"],
    count: ["Times", "count"],
    code: ["Code"],
    model: ofRequest.model,
    request_id: request.request_id,
  },
} satisfies Readonly<Record<string, ShownFields>>;

type WordsOf<Text extends string> = Text extends `${infer Word} ${infer Rest}`
  ? WordsOf<Word> | WordsOf<Rest>
  : Text extends `${infer Word}?`
    ? Word
    : Text;

/**
 * Names of fields with spaces between them. After a name, `?` leaves out a column without values.
 * `Own`: the fields that have cells of their own.
 */
type NamesOf<Fields, Text extends string, Own> = [WordsOf<Text>, Own] extends [keyof Fields, WordsOf<Text>]
  ? Text
  : never;

/** Returns the state of a key, which the column of `revoked_at` has. */
export function keyState(key: Record<"revoked_at" | "expires_at", string | null>, nowMs: EpochMs) {
  return key.revoked_at === null ? expiryState(key.expires_at, nowMs) : "revoked";
}

/** Returns the state of an operator key, which the column of `ended_at` has. */
export function operatorKeyState(key: Record<"ended_at" | "expires_at", string | null>, nowMs: EpochMs) {
  return key.ended_at === null ? expiryState(key.expires_at, nowMs) : "ended";
}

function expiryState(expiresAt: string | null, nowMs: EpochMs) {
  return expiresAt !== null && Date.parse(expiresAt) <= nowMs ? "expired" : "active";
}

/**
 * Returns the name of a person, or without one the id of the issuer or the front end for them.
 * The name that a front end sends was typed by somebody, so it stands behind this id. Names that
 * people have typed themselves are marked.
 */
export function personName(person: {
  issuer: string;
  sub: string;
  name: string | null;
  name_confirmed: boolean;
}): string {
  const { name, name_confirmed: isConfirmed, sub } = person;
  if (name === null) return sub;
  if (isBehindFrontEnd(person)) return `${sub} (${name})`;
  return isConfirmed ? name : `${name} (unconfirmed)`;
}

/** Returns the e-mail address of a person. */
export function personEmail(person: { issuer: string; email: string | null }): string | null {
  const { email } = person;
  return email !== null && isBehindFrontEnd(person) ? `${email} (unconfirmed)` : email;
}

/** Returns the state of a person, which the column of `suspended_at` has. */
export function personState({
  erased_at: erased,
  suspended_at: suspended,
  lapsed_at: lapsed,
}: Record<"erased_at" | "suspended_at" | "lapsed_at", string | null>) {
  if (erased !== null) return "erased";
  if (suspended !== null) return "suspended";
  return lapsed === null ? "active" : "lapsed";
}

/**
 * Returns a function that makes columns of the named fields, for a face that shows values with
 * `cellOf`. `own`: cells of fields that show more than their value.
 */
export function columnsWith<Cell>(cellOf: (kind: Kind, value: unknown, decimals?: number) => Cell) {
  return <Shown extends keyof typeof shown, Names extends string, Row, Own extends string = never>(
    object: Shown,
    names: NamesOf<(typeof shown)[Shown], Names, Own>,
    own?: { [Name in Own]: (row: Row, decimals?: number) => Cell },
  ) => {
    const fields: ShownFields = shown[object];
    const cells = new Map(Object.entries<(row: Row, decimals?: number) => Cell>(own ?? {}));
    return names.split(" ").map((word) => {
      const name = word.replace("?", "");
      const [title, kind = "text", head = title]: ShownField = fields[name] ?? [name];
      const isNumber = numberKinds.some((each) => each === kind);
      const cell =
        cells.get(name) ?? ((row: Row, decimals?: number) => cellOf(kind, valueAt(row, name), decimals));
      const hasAmounts = kind === "credits" || kind === "change";
      const microOf = hasAmounts ? (row: Row) => Number(valueAt(row, name)) : null;
      const hasValue = (row: Row) => valueAt(row, name) !== null;
      return {
        title,
        head: head.toUpperCase(),
        isNumber,
        isOptional: word !== name,
        hasValue,
        cell,
        microOf,
      };
    });
  };
}

/** Null also if an object around the field is null. */
export function valueAt(row: unknown, name: string): unknown {
  return name.split(".").reduce((value, part) => partOf(value, part) ?? null, row);
}
