/**
 * Sends the events of the configuration, and does the regular work on them: queues them for their
 * endpoints, notices what no commit causes, deletes old ones.
 *
 * Without an `events` section nothing runs.
 */
import type { Logger } from "pino";
import { owner } from "../actors.ts";
import type { Catalog } from "../chat/catalog.ts";
import { type EventsConfig, mailEndpoint, wantedEventsOf } from "../config/events.ts";
import type { Jobs } from "../jobs.ts";
import type { TellAccess } from "../ledger/events.ts";
import type { EventStore, WantedEvents } from "../store/events.ts";
import { isPersonId } from "../store/people.ts";
import type { SessionRow } from "../store/sessions.ts";
import type { Store } from "../store/store.ts";
import { EndpointSender } from "./endpoint-sender.ts";
import { Mail } from "./mail.ts";
import { networkList } from "./private-addresses.ts";
import type { Answer, Receiver } from "./receiver.ts";
import { ServiceEvents } from "./service-events.ts";
import { Webhook } from "./webhook.ts";

export interface EventTimes {
  /** Interval between looks for events to send. */
  everyMs: number;
  /** Interval between looks at the models. */
  modelsEveryMs: number;
  /** Interval between looks for expiring keys and old events. */
  slowEveryMs: number;
  /** An event is sent again this long after the death of its process, a mail `mailMs` later. */
  claimMs: number;
  /** Time for a request to a webhook, and for a mail under way at a stop. */
  requestMs: number;
  /** Time for a mail. */
  mailMs: number;
}

export const eventTimes: EventTimes = {
  everyMs: 500,
  modelsEveryMs: 5000,
  slowEveryMs: 240_000,
  claimMs: 60_000,
  requestMs: 20_000,
  mailMs: 300_000,
};

interface EventSendingOptions {
  store: Pick<Store, "events" | "times" | "contact" | "person">;
  catalog: Pick<Catalog, "all">;
  jobs: Jobs;
  /** This process. */
  node: string;
  /** For texts of mail. Null: there is none. */
  portalUrl: string | null;
  times: EventTimes;
  logger: Pick<Logger, "error" | "info">;
  onAttempt(endpoint: string, kind: Answer["kind"]): void;
}

export const keptMs = 30 * 86_400_000;
/** Requests of this process to one endpoint at the same time. */
const slots = 8;

interface Running extends WantedEvents {
  sender: EndpointSender;
}

export class EventSending {
  readonly #options: EventSendingOptions;
  readonly #service: ServiceEvents;
  #config: EventsConfig | null = null;
  #running: Running[] = [];
  /** Senders of configurations before, until their requests have ended. */
  readonly #leaving = new Set<Promise<void>>();
  /** The time for a stop is over. */
  readonly #late = new AbortController();
  #hasJobs = false;
  #isClosed = false;

  constructor(options: EventSendingOptions) {
    this.#options = options;
    this.#service = new ServiceEvents(options);
  }

  /** Follows a configuration. Requests under way have a claim, so the next ones need not wait. */
  configure(config: EventsConfig | null): void {
    this.#config = config;
    for (const { sender } of this.#running) this.#leave(sender);
    this.#running = wantedEventsOf(config).map((wanted) => {
      return { ...wanted, sender: this.#senderOf(wanted.name) };
    });
    if (config !== null && !this.#hasJobs) this.#startJobs();
  }

  #leave(sender: EndpointSender): void {
    const { logger } = this.#options;
    const left = sender
      .stop()
      .catch((err: unknown) => logger.error({ err }, "an endpoint of events could not be left"))
      .finally(() => this.#leaving.delete(left));
    this.#leaving.add(left);
  }

  #senderOf(name: string): EndpointSender {
    const { store, times, logger, onAttempt } = this.#options;
    return new EndpointSender({
      name,
      receiver: this.#receiverOf(name),
      events: store.events,
      nowMs: () => store.times().nowMs,
      ...(name === mailEndpoint
        ? { slots: 1, claimMs: times.mailMs + times.claimMs }
        : { slots, claimMs: times.claimMs }),
      signal: this.#late.signal,
      onAttempt,
      onDead: ({ number, status, answer }) =>
        logger.error(
          { endpoint: name, number, status, answer },
          "an event was tried for three days and is dead",
        ),
    });
  }

  #receiverOf(name: string): Receiver {
    const { store, times, portalUrl } = this.#options;
    const { requestMs, mailMs } = times;
    const nowMs = () => store.times().nowMs;
    const { mail = null, endpoints = [], networks = [] } = this.#config ?? {};
    if (name === mailEndpoint && mail !== null)
      return new Mail({ config: mail, store, nowMs, mailMs, portalUrl });
    const endpoint = endpoints.find((each) => each.name === name);
    if (endpoint === undefined) throw new Error(`the configuration has no endpoint ${name}`);
    const { url, secrets } = endpoint;
    return new Webhook({ url, secrets, networks: networkList(networks), requestMs, connectionsMax: slots });
  }

  #startJobs(): void {
    const { jobs, store, times } = this.#options;
    this.#hasJobs = true;
    jobs.start({
      name: "send_events",
      everyMs: times.everyMs,
      failure: "events could not be read or recorded",
      run: () => this.#send(store.events),
    });
    jobs.start({
      name: "watch_models",
      everyMs: times.modelsEveryMs,
      failure: "the state of a model could not be recorded",
      run: async () => {
        if (this.#config !== null) await this.#service.lookAtModels();
      },
    });
    jobs.start({
      name: "keep_events",
      everyMs: times.slowEveryMs,
      failure: "expiring keys or old events could not be read",
      run: async (isStopped) => {
        if (this.#config === null) return;
        await this.#service.findExpiringKeys(this.#config.expiringMs);
        while (!isStopped() && (await store.events.prune(store.times().atMs - keptMs)));
      },
    });
  }

  async #send(events: EventStore): Promise<void> {
    if (this.#isClosed) return;
    const running = this.#running;
    while (running.length > 0 && (await events.queue(running)));
    const errors: unknown[] = [];
    for (const { sender } of this.#running) {
      try {
        sender.start();
      } catch (error) {
        errors.push(error);
      }
    }
    // An endpoint whose results cannot be recorded does not keep the others from starting.
    if (errors.length > 0) throw errors[0];
  }

  /** An operator has a new session in the console. */
  async signedIn({ hash, owner: id }: Pick<SessionRow, "hash" | "owner">): Promise<void> {
    const by = isPersonId(id) ? `person:${id}` : owner.by;
    await this.access("operator.signed_in", { by }, hash);
  }

  /** As `ServiceEvents.access`, if events are configured. */
  access: TellAccess = async (...event) => {
    if (this.#config !== null) await this.#service.access(...event);
  };

  /** Resolves when no request is under way. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { sender } of this.#running) this.#leave(sender);
    this.#running = [];
    const late = setTimeout(() => this.#late.abort(), this.#options.times.requestMs);
    await Promise.all(this.#leaving);
    clearTimeout(late);
  }
}
