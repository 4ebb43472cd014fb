/**
 * Longest block of the event loop, and latency of `/healthz`, while generated worst cases run
 * against the whole program: large and hostile bodies, floods of requests, long answers. The floor
 * is the same measurement of an idle service.
 *
 *   npm run bench -- blocking [--seconds 3] [--only TEXT]
 *
 * `--only` selects attacks whose name contains the text. The block is measured inside the process,
 * the latency from another process.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { attacks, run as runAttack } from "../test/fixtures/attacks.ts";
import { startWatchedService, type Watched } from "../test/fixtures/watched-service.ts";
import { optionsOf } from "./options.ts";

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    seconds: "3",
    only: "",
  });
  const ms = Number(values.seconds) * 1000;
  await using service = await startWatchedService();
  const table: Record<string, string>[] = [];
  // Not counted: code is compiled and files are opened.
  await service.watch(() => sleep(1000));
  const idle = await service.watch(() => sleep(ms));
  table.push(lineOf("idle", idle, idle, ""));
  for (const attack of attacks.filter(({ name }) => name.includes(values.only))) {
    let answers = "";
    const watched = await service.watch(async () => {
      const statuses = await runAttack(attack, service, ms);
      answers = [...statuses].map(([status, count]) => `${count} x ${status || "none"}`).join(", ");
    });
    table.push(lineOf(attack.name, watched, idle, answers));
    // The rest of this attack must not affect the next one.
    await sleep(300);
  }
  console.log(`Each attack for ${values.seconds} s, with the keys of ${service.keys.length} accounts`);
  console.table(table);
}

function lineOf(attack: string, watched: Watched, idle: Watched, answers: string) {
  return {
    attack,
    "longest block ms": watched.longestBlockMs.toFixed(0),
    "of it processor ms": watched.longestWorkMs.toFixed(0),
    "health p50 ms": watched.healthP50Ms.toFixed(1),
    "health p99 ms": watched.healthP99Ms.toFixed(1),
    "p99 / idle": (watched.healthP99Ms / idle.healthP99Ms).toFixed(1),
    "resident MB": watched.residentMb.toFixed(0),
    answers,
  };
}
