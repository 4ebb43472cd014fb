/**
 * The fields of the objects that people see: what they are called, and what they are. The tables
 * and lists of facts of the command line and of the pages are made from it.
 *
 * Pages bundle this file.
 */
import { planLimits } from "../accounts/plan-limits.ts";

const numberKinds = ["count", "number", "price", "credits", "change", "ms"] as const;

/**
 * A `count` has separators, a `number` has none. `price`: of a million tokens. `credits` are
 * micro-credits, and a `change` of them has a sign.
 */
export type Kind = "text" | "code" | "state" | "time" | "list" | (typeof numberKinds)[number];

/** `head`: a shorter title, for the command line. */
type ShownField = readonly [label: string, kind?: Kind, head?: string];

/** By their names in the JSON of the object. A name with dots leads to a field inside. */
export type ShownFields = Readonly<Record<string, ShownField>>;

const id = ["Account"] as const;

export const account = {
  id,
  plan: ["Plan"],
  next_plan: ["Plan from the next refresh", "text", "Next plan"],
  state: ["State", "state"],
  ends_at: ["Closes", "time"],
  created_at: ["Opened", "time", "Created"],
  owner: ["Owner"],
  email: ["E-mail"],
  external_id: ["External id"],
  note: ["Note"],
  "balance.balances.total.credits": ["Credits left", "count"],
  "balance.balances.base.credits": ["Base", "count"],
  "balance.balances.overage.credits": ["Overage", "count"],
  "balance.balances.additional.credits": ["Additional", "count"],
} satisfies ShownFields;

export const key = {
  id: ["Id"],
  account: id,
  last_four: ["Secret", "code", "Key"],
  name: ["Name"],
  // The state follows from it and from `expires_at`.
  revoked_at: ["State", "state"],
  portal: ["In the portal"],
  budget: ["Budget", "text", "Budget left"],
  limits: ["Limits"],
  models: ["Models", "list"],
  created_at: ["Created", "time"],
  expires_at: ["Expires", "time"],
  last_used_at: ["Last used", "time"],
  old_secret_until: ["Old secret until", "time"],
} satisfies ShownFields;

export const request = {
  request_id: ["Request", "code"],
  account: id,
  key: ["Key", "code"],
  model: ["Model"],
} satisfies ShownFields;

const tokens = {
  prompt_tokens: ["Prompt tokens", "count", "Prompt"],
  cached_tokens: ["Cached tokens", "count", "Cached"],
  completion_tokens: ["Answer tokens", "count", "Completion"],
} satisfies ShownFields;

const costs = {
  cost_micro: ["Cost in credits", "credits", "Credits"],
  base_micro: ["Base", "credits"],
  overage_micro: ["Overage", "credits"],
  additional_micro: ["Additional", "credits"],
} satisfies ShownFields;

const started = ["Started", "time"] as const;

/** Of this process, of another one, and of the holder of a key: their times have three names. */
export const runningRequest = {
  ...request,
  state: ["State", "state"],
  since: started,
  created_at: started,
  started_at: started,
  ...tokens,
  held_micro: ["Held credits", "credits", "Held"],
} satisfies ShownFields;

export const receipt = {
  finished_at: ["Finished", "time"],
  ...request,
  ending: ["Ending", "state"],
  ...tokens,
  ...costs,
} satisfies ShownFields;

export const usageSum = {
  day: ["Day"],
  hour: ["Hour", "time"],
  ...request,
  final: ["State"],
  requests: ["Requests", "count"],
  ...tokens,
  ...costs,
} satisfies ShownFields;

export const journalEntry = {
  seq: ["Number", "number"],
  at: ["Time", "time"],
  kind: ["Kind", "state"],
  bucket: ["Bucket"],
  amount_micro: ["Credits", "change"],
  grant: ["Grant", "number"],
  by: ["By"],
  operation: ["Id", "code"],
  note: ["Note"],
} satisfies ShownFields;

/** As it is, and its changes in a month. */
export const payment = {
  payment_id: ["Payment"],
  account: id,
  at: ["Time", "time"],
  amount_micro: ["Credits", "credits"],
  left_before_micro: ["Left before", "credits"],
  added_micro: ["Added", "credits"],
  spent_micro: ["Spent", "credits"],
  refunded_micro: ["Refunded", "credits"],
  left_micro: ["Left", "credits"],
} satisfies ShownFields;

export const planVersion = {
  version: ["Version", "number"],
  created_at: ["Since", "time"],
  base: ["Base"],
  overage: ["Overage"],
  "limits.requests_per_minute": [planLimits.requests_per_minute.label, "count"],
  "limits.tokens_per_minute": [planLimits.tokens_per_minute.label, "count"],
  "limits.concurrent": [planLimits.concurrent.label, "count"],
  models: ["Models", "list"],
} satisfies ShownFields;

export const model = {
  id: ["Model"],
  state: ["State", "state"],
  context_window: ["Context", "count"],
  parallel: ["Parallel", "count"],
  "pricing.prompt": ["Prompt", "price"],
  "pricing.cached_prompt": ["Cached prompt", "price", "Cached"],
  "pricing.completion": ["Answer", "price", "Completion"],
  "load.running": ["Running", "count"],
  "load.waiting": ["Waiting", "count"],
  "load.paused": ["Paused", "count"],
  "last_day.requests": ["Requests in 24 h", "count"],
  "last_day.errors": ["Failed", "count"],
  "last_day.tokens_per_second.median": ["Tokens/s", "number"],
  "last_day.first_token_ms.median": ["First token", "ms"],
  servers: ["Servers"],
  source: ["Source", "list"],
  file: ["File"],
} satisfies ShownFields;

type WordsOf<Text extends string> = Text extends `${infer Word} ${infer Rest}`
  ? WordsOf<Word> | WordsOf<Rest>
  : Text extends `${infer Word}?`
    ? Word
    : Text;

/**
 * Names of fields with spaces between them. After a name, `?` leaves out a column without values.
 * `Own`: the fields that have cells of their own.
 */
export type NamesOf<Fields, Text extends string, Own> = [WordsOf<Text>, Own] extends [
  keyof Fields,
  WordsOf<Text>,
]
  ? Text
  : never;

/** Returns the named fields in their order. */
export function fieldsOf(fields: ShownFields, names: string) {
  return names.split(" ").map((word) => {
    const name = word.replace("?", "");
    const [label, kind, head]: ShownField = fields[name] ?? [name];
    return {
      name,
      label,
      kind: kind ?? "text",
      head: head ?? label,
      isNumber: numberKinds.some((each) => each === kind),
      isOptional: word !== name,
    };
  });
}

/** Returns the value of a field. Null also if an object around it is null. */
export function valueAt(row: unknown, name: string): unknown {
  const isRecord = (value: unknown): value is Record<string, unknown> =>
    typeof value === "object" && value !== null;
  return name.split(".").reduce((value, part) => (isRecord(value) ? (value[part] ?? null) : null), row);
}
