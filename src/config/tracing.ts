/**
 * The `tracing` section: the collector of spans, if there is one. The standard variable
 * `OTEL_EXPORTER_OTLP_ENDPOINT` also names it, so that a service among other traced services
 * needs no setting of its own.
 */
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export interface TracingConfig {
  /** Endpoint for OTLP over HTTP in JSON, including the path `/v1/traces`. */
  url: string;
  /** Name of the service in traces. */
  serviceName: string;
}

/** Null: no traces. */
export function readTracing(section: Section): TracingConfig | null {
  const configured = section.optional("endpoint", kind.collectorUrl);
  const serviceName = section.value("service_name", kind.name, {
    or: section.env.OTEL_SERVICE_NAME || "inkwell",
  });
  const endpoint = configured ?? section.variable("OTEL_EXPORTER_OTLP_ENDPOINT", kind.collectorUrl);
  return endpoint === null ? null : { url: `${endpoint.replace(/\/+$/, "")}/v1/traces`, serviceName };
}
