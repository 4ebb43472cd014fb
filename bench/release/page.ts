/** Writes the results of `bench/release.ts` into a section of docs/performance.md. */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, release, totalmem, type } from "node:os";
import { join } from "node:path";
import type { Result } from "./measure.ts";

const root = join(import.meta.dirname, "../..");
const page = join(root, "docs/performance.md");
const heading = "## Results";

function git(...args: string[]): string {
  return execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim();
}

/** Describes machine and versions. Called before a run, while the machine has its own load. */
export function describeRun(): string[][] {
  const { version, dependencies }: { version: string; dependencies: Record<string, string> } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8"),
  );
  const isChanged = git("status", "--porcelain", "--untracked-files=no") !== "";
  const { fastify, undici } = dependencies;
  return [
    ["date", new Date().toISOString().slice(0, 10)],
    ["commit", `${git("rev-parse", "--short=10", "HEAD")}${isChanged ? ", with changes" : ""}`],
    ["processor", `${cpus()[0]?.model ?? "unknown"}, ${availableParallelism()} cores`],
    ["memory", `${(totalmem() / 2 ** 30).toFixed(1)} GiB`],
    ["system", `${type()} ${release()}`],
    ["load before the run", `${loadavg()[0]?.toFixed(2)} processes`],
    [
      "versions",
      `Inkwell ${version}, Node ${process.versions.node}, SQLite ${process.versions.sqlite}, Fastify ${fastify}, undici ${undici}; PostgreSQL as named below`,
    ],
  ];
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => "---"), ...rows];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

export function sectionOf(run: readonly string[][], results: readonly Result[]): string {
  const numbered = results.map((result, n) => ({ ...result, number: `${n + 1}` }));
  return [
    heading,
    tableOf(["", "of this run"], run),
    tableOf(
      ["", "workload", "of the floor", "by processor time", "target"],
      numbered.map((row) => [row.number, row.workload, row.result, row.byTime, row.target]),
    ),
    "Absolute figures, the least and the most of the passes:",
    tableOf(
      ["", "server", "figures"],
      numbered.flatMap(({ number, figures }) => figures.map((figure) => [number, ...figure])),
    ),
  ].join("\n\n");
}

/** Replaces the section of the results, and nothing else. */
export function writePage(section: string): void {
  const text = readFileSync(page, "utf8");
  const from = text.indexOf(`${heading}\n`);
  if (from === -1) throw new Error(`docs/performance.md has no section "${heading}"`);
  const to = text.indexOf("\n## ", from);
  writeFileSync(page, `${text.slice(0, from)}${section}\n${to === -1 ? "" : text.slice(to)}`);
}
