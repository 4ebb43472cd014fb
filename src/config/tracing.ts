/**
 * The `tracing` section: the collector of spans, if there is one. The standard variable
 * `OTEL_EXPORTER_OTLP_ENDPOINT` also names it, so that a service among other traced services
 * needs no setting of its own.
 */
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export type TracingConfig = NonNullable<ReturnType<typeof readTracing>>;

/** Null: no traces. */
export function readTracing(section: Section) {
  const configured = section.optional("endpoint", kind.collectorUrl);
  const serviceName = section.value("service_name", kind.name, {
    or: section.env.OTEL_SERVICE_NAME || "inkwell",
  });
  const endpoint = configured ?? section.variable("OTEL_EXPORTER_OTLP_ENDPOINT", kind.collectorUrl);
  // The URL accepts OTLP over HTTP in JSON.
  return endpoint === null ? null : { url: `${endpoint.replace(/\/+$/, "")}/v1/traces`, serviceName };
}
