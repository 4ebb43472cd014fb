/** The metrics of events: attempts of this process, and the state of all endpoints. */
import { Counter, Gauge, type Registry } from "prom-client";
import type { EventStore } from "../store/events.ts";

/** The endpoints of a configuration are few, so they may be a label. */
const labelNames = ["endpoint"] as const;

export class EventMetrics {
  readonly #attempts: Counter<"endpoint" | "result">;
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
    const gauges = {
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
    const endpoints = () => this.#endpoints();
    new Gauge({
      name: "inkwell_events_pending",
      help: "Events that wait to be sent, by endpoint. NaN if the database does not respond.",
      labelNames,
      registers,
      // The other gauges are of the same read.
      async collect() {
        for (const each of [this, ...Object.values(gauges)]) each.reset();
        const rows = await endpoints().catch(() => null);
        if (rows === null) this.set({ endpoint: "" }, Number.NaN);
        for (const { name: endpoint, pending, setAside, failingMs, parkedMs } of rows ?? []) {
          this.set({ endpoint }, pending);
          gauges.setAside.set({ endpoint }, setAside);
          gauges.failing.set({ endpoint }, failingMs === null ? 0 : 1);
          gauges.parked.set({ endpoint }, parkedMs === null ? 0 : 1);
        }
      },
    });
  }

  /** The gauges are read from the database at each scrape. */
  observe(endpoints: EventStore["endpoints"]): void {
    this.#endpoints = endpoints;
  }

  attempted(endpoint: string, result: string): void {
    this.#attempts.inc({ endpoint, result });
  }
}
