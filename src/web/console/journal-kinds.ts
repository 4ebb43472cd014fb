/** Kinds of journal entries in the groups that the console offers. */

/** The kinds that requests cause. */
const requests = ["hold", "extend", "settle", "void", "expire"];
const purchases = ["topup", "refund", "adjust"];
const windows = ["open", "refresh", "plan", "reverse"];
const states = ["suspend", "resume", "end", "close"];
const keys = ["key"];

interface KindGroup {
  title: string;
  /** Null: all. */
  kinds: readonly string[] | null;
}

/** By their names in the path of the page. The first one is the default. */
export const kindGroups: ReadonlyMap<string, KindGroup> = new Map([
  ["", { title: "without requests", kinds: [...purchases, ...windows, ...states, ...keys] }],
  ["all", { title: "all entries", kinds: null }],
  ["payments", { title: "payments, refunds and adjustments", kinds: purchases }],
  ["windows", { title: "refills and plans", kinds: windows }],
  ["states", { title: "suspensions and closing", kinds: states }],
  ["keys", { title: "budgets of keys", kinds: keys }],
  ["requests", { title: "requests: holds and settlements", kinds: requests }],
]);
