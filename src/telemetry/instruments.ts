/** Makes the metrics of a process, and those of a service of several processes. */
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

export type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

/** Returns what stays true of processes that have ended: their counters. */
export async function lastingMetrics(all: readonly MetricValues[]): Promise<MetricValues> {
  const metrics = await AggregatorRegistry.aggregate([...all]).getMetricsAsJSON();
  return metrics.filter(({ type }) => ["counter", "histogram"].includes(String(type)));
}

/** Returns the text of all processes of a service. */
export async function metricsText(all: readonly MetricValues[]): Promise<string> {
  return await AggregatorRegistry.aggregate([...all]).metrics();
}

/** Creates metrics in one registry. */
export class Instruments {
  readonly registry = new Registry();

  constructor() {
    collectDefaultMetrics({ register: this.registry });
  }

  counter<Label extends string = never>(name: string, help: string, labelNames: Label[] = []) {
    return new Counter<Label>({ name, help, labelNames, registers: [this.registry] });
  }

  /** What the processes of a service have together is their sum, their least or their most. */
  readonly gauge = this.#gauges("sum");
  readonly least = this.#gauges("min");
  readonly most = this.#gauges("max");

  #gauges(aggregator: "sum" | "min" | "max") {
    return <Label extends string = never>(name: string, help: string, labelNames: Label[] = []) =>
      new Gauge<Label>({ name, help, labelNames, aggregator, registers: [this.registry] });
  }

  histogram<Label extends string = never>(
    name: string,
    help: string,
    buckets: number[],
    labelNames: Label[] = [],
  ) {
    return new Histogram<Label>({ name, help, buckets, labelNames, registers: [this.registry] });
  }
}
