/** The collector in the configuration: the setting of Inkwell, or the standard variable. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { loadConfig } from "../../src/config/load.ts";

function tracing(yaml: string, env: Record<string, string> = {}) {
  const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-config-"));
  try {
    writeFileSync(path.join(cwd, "inkwell.yaml"), yaml);
    return loadConfig({ cwd, env }).tracing;
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

test("sends no traces without a collector", () => {
  assert.equal(tracing(""), null);
  assert.equal(tracing("tracing: { service_name: ink }", { OTEL_EXPORTER_OTLP_ENDPOINT: "" }), null);
});

test("prefers the setting to the standard variables", () => {
  const standard = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://standard:4318/", OTEL_SERVICE_NAME: "standard" };
  assert.deepEqual(tracing("", standard), { url: "http://standard:4318/v1/traces", serviceName: "standard" });
  const file = "tracing: { endpoint: 'https://file.example/otlp', service_name: file }";
  assert.deepEqual(tracing(file, standard), {
    url: "https://file.example/otlp/v1/traces",
    serviceName: "file",
  });
});

test("refuses an invalid URL and shows the valid form", () => {
  const right = /expected the URL of an OTLP\/HTTP collector, such as http:\/\/127\.0\.0\.1:4318/;
  assert.throws(() => tracing("tracing: { endpoint: 'collector:4317' }"), right);
  assert.throws(() => tracing("tracing: { endpoint: 'http://collector:4318/v1/traces' }"), right);
  assert.throws(
    () => tracing("", { OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4317" }),
    /OTEL_EXPORTER_OTLP_ENDPOINT: found "collector:4317", expected the URL/,
  );
  assert.throws(() => tracing("tracing: { url: 'http://collector:4318' }"), /tracing\.url is not known/);
});
