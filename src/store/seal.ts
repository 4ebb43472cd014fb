/**
 * Seals: what an audit writes down about all facts of a ledger, to prove later that they are still
 * there, unchanged. A seal is kept where whoever can write to the database cannot change it.
 *
 * A seal is text with a line for each list of facts that only grows: the sections of plans, the
 * versions of each plan, the times at which days became final, the facts of each account (journal
 * entries, grants, charges). The line has the number of the last fact and the SHA-256 of all up to
 * it. The last line has that of the lines.
 */
import { hash } from "node:crypto";
import { OperatorError } from "../errors.ts";
import type { EpochMs } from "../units.ts";

const heading = "inkwell-seal 1";

/** A list of facts: `sections`, `days`, `plan pro` or `account ada`. */
export interface SealedList {
  name: string;
  /** The number of its last fact. */
  last: number;
  /** SHA-256 in lower-case hex. */
  sha256: string;
}

export interface Seal {
  sealedMs: EpochMs;
  lists: ReadonlyMap<string, SealedList>;
}

export function sealText(sealedMs: EpochMs, lists: readonly SealedList[]): string {
  const lines = [
    `${heading} ${new Date(sealedMs).toISOString()}`,
    ...lists.map(({ name, last, sha256 }) => `${name} ${last} ${sha256}`),
  ];
  const text = `${lines.join("\n")}\n`;
  return `${text}total ${lists.length} ${hash("sha256", text, "hex")}\n`;
}

/** Reads a seal. Throws an OperatorError that names the line if the text is no whole seal. */
export function readSeal(text: string, file: string): Seal {
  const lines = text.split("\n");
  const first = lines[0] ?? "";
  const sealedMs = Date.parse(first.slice(heading.length + 1));
  if (!first.startsWith(`${heading} `) || Number.isNaN(sealedMs)) {
    throw new OperatorError(`${file} is no seal: its first line must be "${heading} TIME".`);
  }
  const end = text.lastIndexOf("\n", text.length - 2) + 1;
  const [, count, sha256] = /^total (\d+) ([0-9a-f]{64})\n$/.exec(text.slice(end)) ?? [];
  if (count === undefined || hash("sha256", text.slice(0, end), "hex") !== sha256) {
    throw new OperatorError(
      `${file} is damaged: its last line must be "total COUNT SHA256", and agree with the lines before. Use another copy of the seal.`,
    );
  }
  const lists = new Map<string, SealedList>();
  for (const [index, line] of lines.slice(1, -2).entries()) {
    const [, name, last, digest] =
      /^(sections|days|(?:plan|account) \S+) (\d+) ([0-9a-f]{64})$/.exec(line) ?? [];
    if (name === undefined || last === undefined || digest === undefined) {
      throw new OperatorError(`${file}, line ${index + 2}, is not "NAME NUMBER SHA256".`);
    }
    lists.set(name, { name, last: Number(last), sha256: digest });
  }
  return { sealedMs, lists };
}
