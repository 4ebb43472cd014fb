/**
 * The `workers` setting: how many processes share the listeners of one service, and what each of
 * them may use. The limits of the file are those of the service, so each worker has its part.
 */
import { OperatorError } from "../errors.ts";
import * as kind from "./kinds.ts";
import type { ServiceLimits } from "./limits.ts";
import type { ModelConfig } from "./model.ts";
import type { Section } from "./section.ts";

const workersMost = 64;

export function readWorkers(root: Section, isSqlite: boolean, models: readonly ModelConfig[]): number {
  const { value: workers, where } = root.placed("workers", kind.whole(1, workersMost), { or: 1 });
  if (workers > 1 && isSqlite)
    root.problem(where, `workers: ${workers} processes need PostgreSQL; set database, or workers: 1`);
  for (const problem of models.flatMap((each) => unsuited(each, workers))) root.problem(where, problem);
  return workers;
}

function unsuited(model: ModelConfig, workers: number): string[] {
  if (workers === 1) return [];
  const { id, parallel } = model;
  // Each worker would load it, and the threads of all would wait for one another.
  if (model.engine === "llama")
    return [
      `workers: each of ${workers} processes would load ${id}; serve it with another Inkwell or llama-server as an upstream, or set workers: 1`,
    ];
  if (parallel >= workers) return [];
  return [`workers: models.${id}.parallel is ${parallel}, too few for ${workers} processes`];
}

/**
 * Returns the configuration of each of so many workers, whose number a new file does not change.
 * Throws an `OperatorError` if they cannot share its models.
 */
export function shareOf<T extends { limits: ServiceLimits; models: ModelConfig[] }>(
  config: T,
  workers: number,
): T {
  const { limits, models } = config;
  const problems = models.flatMap((each) =>
    unsuited(each, workers).map((what) => `\n  ${each.where}: ${what}`),
  );
  if (problems.length > 0)
    throw new OperatorError(`Until a restart, ${workers} workers run:${problems.join("")}`);
  const part = (whole: number, least = 1) => Math.max(least, Math.floor(whole / workers));
  const { bodyBytesMax, connectionsMax, connectionsPerAddressMax } = limits;
  return {
    ...config,
    limits: {
      ...limits,
      uploadBytesMax: part(limits.uploadBytesMax, bodyBytesMax),
      refusedBytesPerMinute: part(limits.refusedBytesPerMinute),
      refusedMsPerMinute: part(limits.refusedMsPerMinute),
      connectionsMax: connectionsMax && part(connectionsMax),
      connectionsPerAddressMax: connectionsPerAddressMax && part(connectionsPerAddressMax),
      queueMax: part(limits.queueMax),
    },
    models: models.map((model) => {
      if (model.engine === "llama") return model;
      return { ...model, parallel: part(model.parallel), reserved: part(model.reserved, 0) };
    }),
  };
}
