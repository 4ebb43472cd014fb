/**
 * The service in a Kubernetes pod: with the variables of Services and the probes of the kubelet.
 */
import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { startInside } from "../fixtures/inner-program.ts";
import { newFolder } from "../fixtures/program.ts";
import { exchange, parseAnswer } from "../fixtures/raw-http.ts";
import { serviceLinks } from "../fixtures/service-links.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

test("starts beside Services named inkwell and inkwell-operator, and logs which variables it ignores", async () => {
  await using folder = await newFolder();
  await using upstream = await startUpstream();
  configureUpstream(folder.path, upstream);
  appendFileSync(path.join(folder.path, "inkwell.yaml"), "listen: { port: 0 }\noperator: { port: 0 }\n");
  await using service = startInside(folder.path, {
    env: {
      ...serviceLinks({ name: "inkwell", ports: [{ name: "http", port: 8080 }] }),
      ...serviceLinks({ name: "inkwell-operator", ports: [{ name: "http", port: 8081 }] }),
    },
  });
  const { operatorUrl } = await service.up();
  await service.shows("Kubernetes");
  const lines = service.stderr.split("\n").filter((line) => line.includes("Kubernetes"));
  assert.equal(lines.length, 1, service.stderr);
  const { level, variables } = JSON.parse(lines[0] ?? "");
  assert.deepEqual([level, variables], [30, ["INKWELL_PORT", "INKWELL_OPERATOR_PORT"]]);
  for (const probe of ["/healthz", "/readyz"]) {
    const request = `GET ${probe} HTTP/1.1\r\nHost: 10.244.1.7:8081\r\nConnection: close\r\n\r\n`;
    const { status } = parseAnswer(await exchange(Number(new URL(operatorUrl).port), request));
    assert.equal(status, 200, probe);
  }
});
