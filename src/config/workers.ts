/**
 * The `workers` setting: how many processes share the listeners of one service, and what each of
 * them may use. The limits of the file are those of the service, so each worker has its part.
 */
import * as kind from "./kinds.ts";
import type { ServiceLimits } from "./limits.ts";
import type { ModelConfig } from "./model.ts";
import type { Section } from "./section.ts";

const workersMost = 64;

export function readWorkers(root: Section, isSqlite: boolean, models: readonly ModelConfig[]): number {
  const { value: workers, where } = root.placed("workers", kind.whole(1, workersMost), { or: 1 });
  if (workers > 1 && isSqlite)
    root.problem(where, `workers: ${workers} processes need PostgreSQL; set database, or workers: 1`);
  for (const model of models) {
    if (workers === 1) break;
    // Each worker would load it, and the threads of all would wait for one another.
    const { id } = model;
    if (model.engine === "llama")
      root.problem(
        where,
        `workers: each of ${workers} processes would load ${id}; serve it with another Inkwell or llama-server as an upstream, or set workers: 1`,
      );
    else if (model.parallel < workers)
      root.problem(
        where,
        `workers: models.${id}.parallel is ${model.parallel}, too few for ${workers} processes`,
      );
  }
  return workers;
}

/** Returns the configuration of each of so many workers. */
export function shareOf<T extends { limits: ServiceLimits; models: ModelConfig[] }>(
  config: T,
  workers: number,
): T {
  const { limits, models } = config;
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
