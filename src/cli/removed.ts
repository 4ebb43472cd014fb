/** Commands and options that earlier states had, and what takes their place. */
import type { Command } from "commander";

const byAddress = "the service of this folder is found by itself, and --server names one elsewhere";

const removed: Readonly<Record<string, string>> = {
  "events resume": "use events send ENDPOINT, which ends all pauses and sends dead events again",
  "events replay":
    "use events send ENDPOINT for events that are dead, with --event ID for one that was delivered",
  "reload --url": byAddress,
  "console --url": byAddress,
};

/** Returns the sentence about a removed word in place of Commander's about an unknown one. */
export function removedCommand(group: Command, error: string): string | undefined {
  const [, word = ""] = /^error: unknown (?:command|option) '(\S+)'/.exec(error) ?? [];
  const words = `${group.name()} ${word}`;
  return removed[words] && `error: ${words} is gone: ${removed[words]}\n`;
}
