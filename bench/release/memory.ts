/** Resident memory of all processes of the service without an embedded model: idle, and under load. */
import { setTimeout as sleep } from "node:timers/promises";
import { residentBytes } from "../processes.ts";
import {
  bodyOf,
  measureRun,
  type Options,
  type Result,
  rangeOf,
  rotated,
  startBare,
  startInkwell,
  type Target,
} from "./measure.ts";

interface Side {
  title: string;
  idle: number[];
  most: number[];
  start(): Promise<Target & AsyncDisposable & { addAccounts?(count: number): Promise<void> }>;
}

export async function memory(options: Options): Promise<Result[]> {
  const { clients, seconds, idleSeconds } = options;
  const side = (title: string, start: Side["start"]): Side => ({ title, start, idle: [], most: [] });
  const inkwell = side("Inkwell", () => startInkwell(options, { accounts: 1 }));
  const bare = side("bare, Fastify and undici", () => startBare(options));
  for (let pass = 0; pass < options.passes; pass += 1) {
    for (const { start, idle, most } of rotated([inkwell, bare], pass)) {
      await using server = await start();
      const resident = () => residentBytes(server.process.pid ?? Number.NaN) / 1e6;
      await sleep(idleSeconds * 1000);
      idle.push(resident());
      await server.addAccounts?.(clients - 1);
      const seen: number[] = [];
      const timer = setInterval(() => seen.push(resident()), 200);
      await measureRun(server, { body: bodyOf("pieces", false), seconds });
      clearInterval(timer);
      most.push(Math.max(...seen, resident()));
    }
  }
  const figures = [inkwell, bare].map(({ title, idle, most }): [string, string] => [
    title,
    `idle ${rangeOf(idle, 0)} MB; at most ${rangeOf(most, 0)} MB under load`,
  ]);
  return [
    {
      workload: `memory without an embedded model, idle ${idleSeconds} s after the start`,
      result: `${rangeOf(inkwell.idle, 0)} MB`,
      byTime: "",
      target: "120 MB",
      figures,
    },
    {
      workload: `the most under ${clients} clients for ${seconds} s, whole answers`,
      result: `${rangeOf(inkwell.most, 0)} MB`,
      byTime: "",
      target: "250 MB",
      figures: [],
    },
  ];
}
