/** Variables that Kubernetes sets for Services whose names begin like settings of Inkwell. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of
// this form.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { loadConfig } from "../../src/config/load.ts";
import { directory, problemsOf } from "../fixtures/configuration.ts";
import { type ServiceLink, serviceLinks } from "../fixtures/service-links.ts";

const cwd = directory();

/** The configuration without `ignoredVariables`, and these. */
function loaded(env: Record<string, string>) {
  const { ignoredVariables, ...config } = loadConfig({ cwd, env });
  return { config, ignoredVariables };
}

describe("the links to a Service", () => {
  const http = { name: "http", port: 8080 };
  const others = (
    "inkwell-portal-host inkwell-operator-host inkwell-operato inkwell-operator-token inkwell-operator-url inkwell-host inkwell-data " +
    "inkwell-models inkwell-database inkwell-config inkwell-api-key inkwell-limits inkwell-tracing inkwell-limits--queue inkwell-models--small inkwell--canary inkwell2"
  ).split(" ");
  const services: [ServiceLink, string[]][] = [
    [{ name: "inkwell", ports: [http] }, ["INKWELL_PORT"]],
    [{ name: "inkwell", ip: "fd00:10:96::1", ports: [http] }, ["INKWELL_PORT"]],
    [{ name: "inkwell", ports: [{ port: 53, protocol: "UDP" }] }, ["INKWELL_PORT"]],
    [{ name: "inkwell", ports: [{ port: 9, protocol: "SCTP" }, http] }, ["INKWELL_PORT"]],
    [{ name: "inkwell-operator", ports: [{ name: "operator-http", port: 8081 }] }, ["INKWELL_OPERATOR_PORT"]],
    [{ name: "inkwell-portal", ports: [http] }, ["INKWELL_PORTAL_PORT"]],
    ...others.map((name): [ServiceLink, string[]] => [{ name, ports: [http, { port: 8081 }] }, []]),
  ];
  for (const [service, ignored] of services) {
    test(`are not read as settings: ${service.name}, ${JSON.stringify(service.ports)}`, () => {
      const env = serviceLinks(service);
      const { config, ignoredVariables } = loaded(env);
      assert.deepEqual(config, loaded({}).config);
      assert.deepEqual(ignoredVariables, ignored);
    });
  }

  test("do not change settings of the file or of other variables", () => {
    const { listen, operator } = loadConfig({
      cwd: directory("listen: { port: 1 }\noperator: { port: 2 }"),
      env: {
        ...serviceLinks({ name: "inkwell", ports: [http] }),
        ...serviceLinks({ name: "inkwell-operator", ports: [http] }),
        INKWELL_HOST: "0.0.0.0",
      },
    });
    assert.deepEqual([listen.host, listen.port, operator.port], ["0.0.0.0", 1, 2]);
  });

  test("yield to a variable of the pod, as in Kubernetes", () => {
    const env = { ...serviceLinks({ name: "inkwell", ports: [http] }), INKWELL_PORT: "9000" };
    assert.equal(loadConfig({ cwd, env }).listen.port, 9000);
    assert.deepEqual(loadConfig({ cwd, env }).ignoredVariables, []);
  });

  test("may be used in the file", () => {
    const env = serviceLinks({ name: "inkwell", ports: [http] });
    const yaml = "listen: { port: '${INKWELL_SERVICE_PORT}' }";
    assert.equal(loadConfig({ cwd: directory(yaml), env }).listen.port, 8080);
    assert.deepEqual(problemsOf("listen: { port: '${INKWELL_PORT}' }", env), [
      'inkwell.yaml:1: listen.port: found "${INKWELL_PORT}", expected a port from 0 to 65535 (0: any free one)',
    ]);
  });
});

describe("variables that are not links to a Service", () => {
  for (const [name, value, problem] of [
    ["INKWELL_PORT", "808O", /^INKWELL_PORT: listen\.port: found "808O"/],
    ["INKWELL_PORT", "http://10.0.0.1:8080", /^INKWELL_PORT: listen\.port: found/],
    ["INKWELL_OPERATOR_PORT", "10.0.0.1:8081", /^INKWELL_OPERATOR_PORT: operator\.port: found/],
    ["INKWELL_LISTEN__PORT", "http://10.0.0.1:80", /^INKWELL_LISTEN__PORT: .* set listen\.port in inkwell/],
  ] as const) {
    test(`are refused: ${name}=${value}`, () => {
      assert.match(problemsOf(undefined, { [name]: value }).join("\n"), problem);
    });
  }
});
