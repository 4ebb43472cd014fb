/**
 * The `tracing` section: where spans are sent, if anywhere. Where it names no collector the standard variable
 * `OTEL_EXPORTER_OTLP_ENDPOINT` does, so that a service among others that are traced needs no setting of its own.
 */
import type { Environment } from "./document.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export interface TracingConfig {
  /** Takes OTLP over HTTP as JSON; with the path `/v1/traces`. */
  url: string;
  /** The service's name in traces. */
  serviceName: string;
}

/** Null: no traces. */
export function readTracing(section: Section, env: Environment): TracingConfig | null {
  const named = section.optional("endpoint", kind.collectorUrl);
  const serviceName = section.value("service_name", kind.name, { or: env.OTEL_SERVICE_NAME || "inkwell" });
  const standard = env.OTEL_EXPORTER_OTLP_ENDPOINT || null;
  if (named === null && standard !== null && kind.collectorUrl.read(standard, true) === undefined) {
    section.problem(
      "OTEL_EXPORTER_OTLP_ENDPOINT",
      `found ${JSON.stringify(standard)}, expected ${kind.collectorUrl.expects}`,
    );
  }
  const endpoint = named ?? standard;
  return endpoint === null ? null : { url: `${endpoint.replace(/\/+$/, "")}/v1/traces`, serviceName };
}
