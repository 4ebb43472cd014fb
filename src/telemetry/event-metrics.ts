/** The metrics of events: attempts of this process, and the state of all endpoints. */
import { inTime } from "../retry.ts";
import type { ListedEndpoint } from "../store/events.ts";
import type { Instruments } from "./instruments.ts";

export class EventMetrics {
  readonly #attempts;
  readonly #gauges;
  #endpoints: () => Promise<ListedEndpoint[]> = async () => [];

  constructor(make: Instruments) {
    // The endpoints of a configuration are few, so they may be a label.
    this.#attempts = make.counter(
      "inkwell_event_attempts_total",
      "Attempts of this process to send an event, by endpoint and result.",
      ["endpoint", "result"],
    );
    // Each process reads the same rows.
    const gauge = (name: string, help: string) => make.most(name, help, ["endpoint"]);
    this.#gauges = {
      pending: gauge(
        "inkwell_events_pending",
        "Events that wait to be sent, by endpoint. NaN if the database does not respond.",
      ),
      dead: gauge(
        "inkwell_events_dead",
        "Events that were tried for three days and are sent no more, by endpoint.",
      ),
      failing: gauge(
        "inkwell_event_failing_accounts",
        "Accounts whose later events wait for one that failed, by endpoint.",
      ),
    };
  }

  observe(endpoints: () => Promise<ListedEndpoint[]>): void {
    this.#endpoints = endpoints;
  }

  /** Reads the gauges from the database, before each scrape. */
  async update(): Promise<void> {
    const { pending, dead, failing } = this.#gauges;
    // The other metrics are useful even if the store does not respond.
    const rows = await inTime(this.#endpoints()).catch(() => null);
    for (const gauge of Object.values(this.#gauges)) gauge.reset();
    if (rows === null) pending.set({ endpoint: "" }, Number.NaN);
    for (const row of rows ?? []) {
      const endpoint = row.name;
      pending.set({ endpoint }, row.pending);
      dead.set({ endpoint }, row.dead);
      failing.set({ endpoint }, row.failing);
    }
  }

  attempted(endpoint: string, result: string): void {
    this.#attempts.inc({ endpoint, result });
  }
}
