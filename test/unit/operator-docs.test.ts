/** docs/operating lists exactly the codes, metrics and routes of the operator listener. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { pino } from "pino";
import { OperatorKeys } from "../../src/accounts/operator-keys.ts";
import { OperatorSessions } from "../../src/accounts/operator-sessions.ts";
import { Catalog } from "../../src/chat/catalog.ts";
import { catalogue, type Entry } from "../../src/errors.ts";
import type { AdminDependencies } from "../../src/http/admin/dependencies.ts";
import { OperatorSignIn } from "../../src/http/admin/operator-sign-in.ts";
import { adminRoutes } from "../../src/http/admin/routes.ts";
import { createApiApp } from "../../src/http/api/app.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { LiveTelemetry } from "../../src/telemetry/live-telemetry.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { start } from "../fixtures/times.ts";

const folder = path.join(import.meta.dirname, "../../docs/operating");
const pageOf = (name: string) => readFileSync(path.join(folder, name), "utf8");
const text = readdirSync(folder).map(pageOf).join("\n");
const rows = text
  .split("\n")
  .filter((line) => line.startsWith("|"))
  .map((line) => line.split("|").map((cell) => cell.trim().replaceAll("`", "")));

function codesFor(whom: Entry["for"]): [code: string, entry: Entry][] {
  return Object.entries<Entry>(catalogue).filter(([, entry]) => entry.for === whom);
}

test("each code of the catalogue has one row", () => {
  const found = rows.filter(([, status = ""]) => /^\d{3}$/.test(status));
  assert.deepEqual(
    found.map(([, status, type, code]) => [code, Number(status), type]),
    codesFor("operator").map(([code, { status, type }]) => [code, status, type]),
  );
  // The first paragraph after the title names what both listeners send.
  const [, shared = ""] = pageOf("operator-errors.md").split("\n\n");
  const named = [...shared.matchAll(/`(\w+)`/g)].map(([, code = ""]) => code);
  assert.deepEqual(
    named.toSorted(),
    codesFor("both")
      .map(([code]) => code)
      .toSorted(),
  );
});

test("each metric has one row", async () => {
  const documented = rows.map(([, name = ""]) => name).filter((name) => name.startsWith("inkwell_"));
  const told = (await new Metrics().text()).matchAll(/^# TYPE (inkwell_\w+) /gm);
  assert.deepEqual(documented.toSorted(), [...told].map(([, name]) => name).toSorted());
});

test("each route has one row", async () => {
  const store = memoryStore(new Map(), () => start);
  const parts = { store, ledger: new Ledger(store), catalog: new Catalog([]) };
  const app = createApiApp();
  const reload = () => Promise.reject(new Error("not reloaded"));
  const configuration = {
    reload,
    previewReload: reload,
    applyPlans: reload,
    configured: () => ({ models: [], plans: new Map(), personKeys: new Map() }),
  };
  const sessions = new OperatorSessions(store, "a-token-of-operators", reload);
  const jobs = testJobs();
  const signIn = new OperatorSignIn({
    operatorKeys: new OperatorKeys(store, "a-token-of-operators", reload),
    store,
    sessions,
    jobs,
    ownUrl: () => null,
    logger: pino({ enabled: false }),
    metrics: new Metrics(),
  });
  const ok = "ok" as const;
  const health = async () => ({ ready: true, store: ok, clock: ok, draining: false, warnings: [] });
  const live = {
    health,
    liveState: reload,
    requests: reload,
    reads: { count: () => {} },
    live: new LiveTelemetry(),
    stops: { stopRequest: reload },
    logger: pino({ enabled: false }),
  };
  const admin: AdminDependencies = {
    ...parts,
    chat: { serve: (to, { path, schema }) => void to.post(path, { schema }, reload) },
    urls: () => ({ api: "", portal: null }),
    ...live,
    signIn,
    nodes: () => [],
    modelIds: () => [],
    ...configuration,
    timezone: () => "UTC",
    token: reload,
    endpoints: () => [],
  };
  adminRoutes(app, admin, "0.0.0");
  await app.ready();
  await jobs.stop();
  const { paths } = app.swagger();
  assert.ok(typeof paths === "object" && paths !== null);
  const routes = Object.entries(paths).flatMap(([route, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${route}`),
  );
  const documented = rows.map(([, name = ""]) => name).filter((name) => /^[A-Z]+ \/admin/.test(name));
  assert.deepEqual(
    documented.filter((name) => name !== "GET /admin/openapi.json").toSorted(),
    routes.toSorted(),
  );
});
