/** The table of limits: operators read what the service does, and no limiter is without a row. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { catalogue } from "../../src/errors.ts";
import { type Limit, limits, type Topic } from "../../src/limits/limits.ts";

const root = join(import.meta.dirname, "../..");
const textOf = (file: string) => readFileSync(join(root, file), "utf8");
const all: readonly Limit[] = Object.values(limits);

/** Returns a number as people write it: `60 MiB`, `15 s`, `1,200 ms`. */
function shown({ most, unit }: Limit): string {
  if (typeof most === "string") return most;
  const count = (number: number) => number.toLocaleString("en");
  if (unit === "bytes") return `${count(most / 1024 / 1024)} MiB`;
  if (unit === "ms") return most % 1000 === 0 ? `${most / 1000} s` : `${count(most)} ms`;
  return count(most);
}

function tableOf(topic: Topic): string[] {
  const rows = all
    .filter((limit) => limit.topic === topic)
    .map((limit) => {
      const { setting, what, of, beyond, metric } = limit;
      const name = setting === undefined ? what : `\`${setting}\`: ${what}`;
      return [name, of, shown(limit), beyond, metric === null ? "" : `\`${metric}\``];
    });
  return rows.map((cells) => `| ${cells.join(" | ")} |`.replaceAll("|  |", "| |"));
}

test("docs/operating/client-limits.md lists the limits as the table has them", () => {
  const page = textOf("docs/operating/client-limits.md");
  for (const topic of new Set(all.map((limit) => limit.topic))) {
    const section = page.split(`## ${topic}\n`)[1]?.split("\n## ")[0] ?? "";
    const [, , ...rows] = section.split("\n").filter((line) => line.startsWith("|"));
    assert.deepEqual(rows, tableOf(topic), topic);
  }
});

test("every refusal of the table is in the catalogue, and every metric on its page", () => {
  const codes = new Map(Object.entries(catalogue));
  const metrics = textOf("docs/operating/metrics.md");
  for (const { what, beyond, metric } of all) {
    for (const [, status, code = ""] of beyond.matchAll(/`(\d{3}) (\w+)/g))
      assert.equal(String(codes.get(code)?.status), status, `${what}: ${code}`);
    assert.ok(metric === null || metrics.includes(`| \`${metric}\` |`), `${what}: ${metric}`);
  }
});

test("every setting of the table is in the example of the configuration", () => {
  const example = textOf("inkwell.example.yaml");
  for (const { setting } of all)
    if (setting !== undefined) assert.match(example, new RegExp(`^ +(?:# )?${setting}: `, "m"));
});

test("every limiter is made with a row of its own", () => {
  const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !name.startsWith("limits/"))
    .map((name) => textOf(join("src", name)));
  const made = sources.join("\n").match(/new (?:TokenBucket|Slots|Turns)\(\s*limits\.\w+/g) ?? [];
  const rows = made.map((text) => text.split(".")[1]);
  assert.equal(new Set(rows).size, rows.length);
  assert.equal(sources.join("\n").match(/new (?:TokenBucket|Slots|Turns)\(/g)?.length, rows.length);
});
