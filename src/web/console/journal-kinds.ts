/** Kinds of journal entries in the groups that the console offers. */

const credits = ["payment", "promotion", "memo", "adjust", "refund"];
const windows = ["open", "window", "plan", "change"];
const states = ["suspend", "resume", "end", "close"];
const keys = ["key"];

/** By their names in the path of the page. The first one is the default. Null: all kinds. */
export const kindGroups: ReadonlyMap<string, { title: string; kinds: readonly string[] | null }> = new Map([
  ["", { title: "without requests", kinds: [...credits, ...windows, ...states, ...keys] }],
  ["all", { title: "all entries", kinds: null }],
  ["payments", { title: "payments, refunds and promotional credits", kinds: credits }],
  ["windows", { title: "refills and plans", kinds: windows }],
  ["states", { title: "suspensions and closing", kinds: states }],
  ["keys", { title: "keys", kinds: keys }],
  ["requests", { title: "charges of requests", kinds: ["charge"] }],
]);
