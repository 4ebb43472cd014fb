/**
 * The operator's listener, apart from the public one and bound to loopback unless configured otherwise: whether the
 * service is alive and whether it can answer. Neither calls a model.
 */
import { type FastifyInstance, fastify } from "fastify";
import { Refusal } from "../errors.ts";
import type { EngineState } from "../generation/engine.ts";
import { errorBody } from "../wire/error-body.ts";

export interface OperatorDependencies {
  /** Resolves when the store has answered; rejects where it cannot. */
  pingStore(): Promise<void>;
  /** By model id. */
  engineStates(): ReadonlyMap<string, EngineState>;
  draining(): boolean;
}

export interface Readiness {
  ready: boolean;
  /** Draining means that the service is being stopped. */
  store: "ok" | "unreachable";
  draining: boolean;
  models: Record<string, EngineState>;
}

export function createOperatorServer(dependencies: OperatorDependencies): FastifyInstance {
  const app = fastify({ logger: false, forceCloseConnections: true });

  app.get("/healthz", async () => ({ status: "ok" }));

  app.get("/readyz", async (_request, reply) => {
    const store = await dependencies.pingStore().then(
      () => "ok" as const,
      () => "unreachable" as const,
    );
    const models = dependencies.engineStates();
    const draining = dependencies.draining();
    const ready = store === "ok" && !draining && [...models.values()].includes("ready");
    const readiness: Readiness = { ready, store, draining, models: Object.fromEntries(models) };
    return reply.code(ready ? 200 : 503).send(readiness);
  });

  app.setNotFoundHandler((_request, reply) => {
    const refusal = new Refusal(
      "unknown_path",
      "The operator listener has GET /healthz and GET /readyz. The public API is on the other port.",
    );
    return reply.code(refusal.status).type("application/json; charset=utf-8").send(errorBody(refusal));
  });
  return app;
}
