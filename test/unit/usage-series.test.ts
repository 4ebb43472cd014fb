/** Series of charts of usage: which groups have one, and when the others share one. */
import assert from "node:assert/strict";
import { test } from "node:test";

// What the module reads of the page that loads it.
const root = { dataset: {} };
const storage = { getItem: () => "secret", setItem() {}, removeItem() {} };
Object.assign(globalThis, { document: { title: "", body: root, getElementById: () => root } });
Object.defineProperty(globalThis, "localStorage", { value: storage });
// A path in a variable, because types of browsers are not those of tests.
const module: string = "../../src/web/shared/usage-series.ts";
const { usageSeries } = await import(module);

const period = { from: "2027-01-15", to: "2027-01-16" };
const sum = { requests: 1, prompt_tokens: 0, completion_tokens: 0, cost_micro: 1 };

/** A report by key, with a row for each key and account that it used, as far as a page goes. */
function reportOf(keys: readonly string[], costMicro: number) {
  const data = keys.map((key, n) => ({ ...sum, key, account: `a${n}` }));
  return { data, total: { ...sum, cost_micro: costMicro }, next: null };
}

/** Returns the names of the series. `micro`: what each key costs on the only day. */
async function namesOf(keys: readonly string[], costMicro = keys.length, micro = 1): Promise<string[]> {
  const kept = globalThis.fetch;
  globalThis.fetch = async (url) => {
    const cost_micro = String(url).includes("key=") ? micro : costMicro;
    return Response.json({ data: [{ ...sum, day: "2027-01-15", cost_micro }], next: null });
  };
  try {
    const { signal } = new AbortController();
    const asked = Promise.resolve(reportOf(keys, costMicro));
    const series = await usageSeries("/admin/usage/sums", "key", period, signal, asked);
    return series.map(({ name }: { name: string }) => name);
  } finally {
    globalThis.fetch = kept;
  }
}

test("a key of seven accounts is one series, and there are no others", async () => {
  assert.deepEqual(await namesOf(Array.from({ length: 7 }, () => "front-end")), ["front-end"]);
});

test("a key whose accounts fill more than a page has no empty rest beside it", async () => {
  assert.deepEqual(await namesOf(["front-end", "front-end"], 150, 150), ["front-end"]);
});

test("the keys after the sixth share a series", async () => {
  const keys = ["a", "b", "c", "d", "e", "f"];
  assert.deepEqual(await namesOf(keys), keys);
  assert.deepEqual(await namesOf([...keys, "g"]), [...keys, "all others"]);
});
