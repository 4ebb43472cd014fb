/** The metrics of events: attempts of this process, and the state of all endpoints. */
import { Counter, Gauge, type Registry } from "prom-client";
import type { EventStore } from "../store/events.ts";

/** The endpoints of a configuration are few, so they may be a label. */
const labelNames = ["endpoint"] as const;

export class EventMetrics {
  readonly #attempts: Counter<"endpoint" | "result">;
  readonly #gauges;
  #endpoints: EventStore["endpoints"] = async () => [];

  constructor(registry: Registry) {
    const registers = [registry];
    this.#attempts = new Counter({
      name: "inkwell_event_attempts_total",
      help: "Attempts of this process to send an event, by endpoint and result.",
      labelNames: [...labelNames, "result"],
      registers,
    });
    const gauge = (name: string, help: string) => new Gauge({ name, help, labelNames, registers });
    this.#gauges = {
      pending: gauge(
        "inkwell_events_pending",
        "Events that wait to be sent, by endpoint. NaN if the database does not respond.",
      ),
      setAside: gauge("inkwell_events_set_aside", "Events that their receiver refuses, by endpoint."),
      failing: gauge(
        "inkwell_event_endpoint_failing",
        "1 if the last attempt at an endpoint failed, and none succeeded since.",
      ),
      parked: gauge(
        "inkwell_event_endpoint_parked",
        "1 if an endpoint failed for days, or wants no events, and gets none until an operator resumes it.",
      ),
    };
  }

  observe(endpoints: EventStore["endpoints"]): void {
    this.#endpoints = endpoints;
  }

  /** Reads the gauges from the database, before each scrape. */
  async update(): Promise<void> {
    const { pending, setAside, failing, parked } = this.#gauges;
    // The other metrics are useful even if the store does not respond.
    const rows = await this.#endpoints().catch(() => null);
    for (const gauge of Object.values(this.#gauges)) gauge.reset();
    if (rows === null) pending.set({ endpoint: "" }, Number.NaN);
    for (const row of rows ?? []) {
      const endpoint = row.name;
      pending.set({ endpoint }, row.pending);
      setAside.set({ endpoint }, row.setAside);
      failing.set({ endpoint }, row.failingMs === null ? 0 : 1);
      parked.set({ endpoint }, row.parkedMs === null ? 0 : 1);
    }
  }

  attempted(endpoint: string, result: string): void {
    this.#attempts.inc({ endpoint, result });
  }
}
