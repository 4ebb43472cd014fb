/**
 * The operator API in the process of a command, beside no service: the same application on the
 * opened database, without a port. It answers no chats and starts no models, jobs, node, events or
 * sweeper. Actions that need those are refused with `service_unavailable`.
 */
import { randomBytes } from "node:crypto";
import type { FastifyInstance } from "fastify";
import { pino } from "pino";
import { OperatorSessions } from "../accounts/operator-sessions.ts";
import { stopWithoutService } from "../accounts/request-stops.ts";
import { wantedEventsOf } from "../config/events.ts";
import type { Config } from "../config/load.ts";
import { Refusal } from "../errors.ts";
import { invitationSettingsOf } from "../events/invitation-mail.ts";
import { createOperatorServer } from "../http/admin/server.ts";
import { AllowedHosts } from "../http/api/allowed-hosts.ts";
import { Jobs } from "../jobs.ts";
import { fieldOf } from "../objects.ts";
import { noServiceHere } from "../operator-address.ts";
import { roleNow } from "../sign-in/rules.ts";
import { Metrics } from "../telemetry/metrics.ts";
import { version } from "../version.ts";
import type { OpenStore } from "./database.ts";

export interface LocalOperator extends AsyncDisposable {
  readonly app: FastifyInstance;
  /** Of this process alone. */
  readonly token: string;
  /** Tells the error behind the last response with a status of 500 or above, once. */
  failure(): unknown;
}

interface LocalOptions {
  /** The operator token, which secrets in the database are derived from. */
  operatorToken(): string;
}

export async function openLocalOperator(
  config: Config,
  { store, ledger }: OpenStore,
  { operatorToken }: LocalOptions,
): Promise<LocalOperator> {
  const token = randomBytes(32).toString("base64url");
  /** The latest one at most. */
  const failures: unknown[] = [];
  const logger = pino({
    level: "error",
    hooks: {
      logMethod: ([fields]) => {
        failures[0] = fieldOf(fields, "err") ?? failures[0];
      },
    },
  });
  const metrics = new Metrics();
  const jobs = new Jobs({ logger, metrics });
  const app = createOperatorServer({
    store,
    ledger,
    jobs,
    logger,
    metrics,
    version,
    modelIds: () => config.models.map(({ id }) => id),
    timezone: () => config.timezone,
    currency: () => config.currency,
    endpoints: () => wantedEventsOf(config.events),
    invitations: () => invitationSettingsOf(config),
    roleNow: (person) => config.signIn && roleNow(person, config.signIn, store.times().nowMs),
    token: async () => operatorToken(),
    configured: () => config,
    applyPlans: async (by) => ({
      ...(await store.applyPlans(config.plans, { force: true, by })),
      warnings: [],
    }),
    stops: { stopRequest: (stop) => stopWithoutService({ store, ledger }, stop) },
    requests: { list: () => [] },
    sessions: new OperatorSessions(store, token, refuseHere),
    operatorKeys: { authenticate: refuseHere },
    allowedHosts: new AllowedHosts([]),
    ownUrl: () => null,
    isTrusted: () => false,
    catalog: { all: refuseHere },
    chat: { serve: () => {} },
    urls: refuseHere,
    live: {
      get activity() {
        return refuseHere();
      },
      get errors() {
        return refuseHere();
      },
      refusalsOf: refuseHere,
    },
    reload: refuseHere,
    previewReload: refuseHere,
    nodes: refuseHere,
    clock: refuseHere,
    draining: refuseHere,
    isWritable: refuseHere,
    warnings: refuseHere,
    lastReload: refuseHere,
    readConsole: refuseHere,
    readDocuments: refuseHere,
  });
  await app.ready();
  return {
    app,
    token,
    failure: () => failures.pop() ?? null,
    async [Symbol.asyncDispose]() {
      await app.close();
      await jobs.stop();
    },
  };
}

function refuseHere(): never {
  throw new Refusal("service_unavailable", noServiceHere());
}
