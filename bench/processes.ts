/** Processor time and memory of processes, from /proc: on Linux, and on this machine only. */
import { readdirSync, readFileSync } from "node:fs";

/** A tick of the kernel, in every Linux that runs Node. */
const tickMs = 10;

/** The fields of /proc/PID/stat after the name: state, parent and so on. Empty if it has ended. */
function statOf(pid: number): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return [];
  }
}

export function parentOf(pid: number): number {
  return Number(statOf(pid)[1] ?? Number.NaN);
}

/** Returns the process and all that it has started, directly or not, and that still run. */
function treeOf(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    if (/^\d+$/.test(name)) parents.set(Number(name), parentOf(Number(name)));
  }
  const tree = [root];
  for (const pid of tree) {
    for (const [child, parent] of parents) if (parent === pid) tree.push(child);
  }
  return tree;
}

/** Processor time of all threads of a process, without those of its children. */
export function ownProcessorMs(pid: number): number {
  const stat = statOf(pid);
  return tickMs * (Number(stat[11]) + Number(stat[12]));
}

/**
 * Returns the processor time of a process and of all that it has started, also of those that have
 * ended. NaN if it is on another machine.
 */
export function processorMs(root: number): number {
  if (statOf(root).length === 0) return Number.NaN;
  const stats = treeOf(root)
    .map(statOf)
    .filter(({ length }) => length > 0);
  const sum = (of: (stat: string[]) => number) => stats.reduce((total, stat) => total + of(stat), 0);
  return tickMs * sum((stat) => [11, 12, 13, 14].reduce((total, at) => total + Number(stat[at]), 0));
}

/** Resident memory of a process and of all that it has started. */
export function residentBytes(root: number): number {
  const each = treeOf(root).map((pid) => {
    try {
      return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) * 1024;
    } catch {
      return 0;
    }
  });
  return each.reduce((sum, bytes) => sum + bytes, 0);
}
