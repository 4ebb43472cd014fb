/** Whether the models of this node work, for its readiness and the warnings to its operator. */
import type { Model } from "../../chat/catalog.ts";

/**
 * Whether the node has loaded a model. An upstream has nothing to load. All nodes use the same
 * servers, so a balancer must not remove the nodes if these servers do not work.
 */
export function isLoaded({ engine }: Model): boolean {
  const isUpstream = (engine.servers?.() ?? null) !== null;
  return engine.state === "ready" || (engine.state === "unavailable" && isUpstream);
}

/** Sentences without addresses of servers: `/readyz` needs no token. */
export function modelWarnings(models: readonly Model[]): string[] {
  return models.flatMap(({ id, engine }) => {
    const servers = engine.servers?.() ?? [];
    const warnings = engine.warnings?.map((warning) => `The model "${id}": ${warning}.`) ?? [];
    if (engine.state === "unavailable") {
      const reason = servers.length === 0 ? "" : ": none of its servers works";
      return [`The model "${id}" is unavailable${reason}.`, ...warnings];
    }
    const allWork = servers.every(({ state }) => state === "ok");
    return allWork ? warnings : [`Not all servers of the model "${id}" work.`];
  });
}
