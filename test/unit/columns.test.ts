/** The described fields of shown objects are those of the JSON, and no face names them again. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { linkAccountObject, linkObject } from "../../src/accounts/link-objects.ts";
import { operatorKeyObject } from "../../src/accounts/log-objects.ts";
import {
  findingObject,
  holdObject,
  keyObject,
  listedAccountObject,
  nodeObject,
  paymentObject,
  usageObject,
} from "../../src/accounts/operator-objects.ts";
import { paymentReportObject } from "../../src/accounts/payment-report.ts";
import { personObject } from "../../src/accounts/person-objects.ts";
import { planObject } from "../../src/accounts/plan-objects.ts";
import { refusedRequestObject } from "../../src/accounts/refused-requests.ts";
import { settingChangeObject } from "../../src/accounts/setting-changes.ts";
import { usageHoursSchema } from "../../src/accounts/usage-hours.ts";
import { usageReportSchema } from "../../src/accounts/usage-sums.ts";
import { shown } from "../../src/actions/columns.ts";
import { deliveryObject, endpointObject } from "../../src/actions/event-runs.ts";
import { changeKey, makeKey } from "../../src/actions/keys.ts";
import { toldChange, toldEntry } from "../../src/actions/told.ts";
import { rowsPage } from "../../src/http/admin/account-rows.ts";
import { jobObject } from "../../src/http/admin/job-object.ts";
import { errorObject, modelObject } from "../../src/http/admin/live-objects.ts";
import { overviewObject } from "../../src/http/admin/overview-object.ts";
import { requestObject } from "../../src/http/admin/request-object.ts";
import { ownSession } from "../../src/http/api/session.ts";
import { runningRequests } from "../../src/http/portal/live.ts";
import { fieldOf } from "../../src/objects.ts";

const month = { leftBeforeMicro: 0, addedMicro: 0, spentMicro: 0, refundedMicro: 0, leftMicro: 0 };
const reported = paymentReportObject({
  month: "2027-01",
  timezone: "UTC",
  fromMs: 0,
  toMs: 0,
  isOver: true,
  total: month,
  rows: [{ id: "inv-1", account: "ada", atMs: 0, ...month }],
}).payments.map((row) => ({ properties: row }));

/** Returns the schema of a field in an object, in items of a list or in one of several schemas. */
function partOf(schema: unknown, names: readonly string[]): unknown {
  const [name, ...rest] = names;
  if (name === undefined) return schema;
  const field = fieldOf(fieldOf(schema, "properties"), name);
  if (field !== undefined) return partOf(field, rest);
  const inner = [fieldOf(schema, "anyOf"), fieldOf(schema, "items")].flat();
  return inner.map((part) => part && partOf(part, names)).find((part) => part !== undefined);
}

/** Schemas of the objects. */
const schemas: Record<keyof typeof shown, readonly unknown[]> = {
  account: [listedAccountObject.schema, partOf(overviewObject.schema, ["low_balance", "accounts"])],
  rowResult: [rowsPage.properties.data],
  key: [keyObject.schema],
  request: [usageObject.schema],
  refusedRequest: [refusedRequestObject.schema, usageObject.schema],
  runningRequest: [requestObject.schema, holdObject.schema, runningRequests.properties.data],
  receipt: [usageObject.schema],
  usageSum: [usageReportSchema.properties.data, usageHoursSchema.properties.data],
  journalEntry: [toldEntry],
  change: [toldChange],
  operatorKey: [operatorKeyObject.schema],
  session: [ownSession.schema],
  person: [personObject.schema],
  link: [linkObject.schema],
  linkAccount: [linkAccountObject.schema],
  payment: [paymentObject.schema, ...reported],
  finding: [findingObject.schema],
  eventEndpoint: [endpointObject.schema],
  eventDelivery: [deliveryObject.schema],
  settingChange: [settingChangeObject.schema],
  plan: [planObject.schema, planObject.schema.properties.versions],
  model: [modelObject.schema],
  node: [nodeObject.schema],
  job: [jobObject.schema],
  recentError: [errorObject.schema],
};

/** The command line has these from the configuration. */
const configured = ["parallel", "source", "file"];

test("every described column names a field of its JSON object", () => {
  for (const [object, fields] of Object.entries(shown)) {
    const found = Object.entries(schemas).find(([name]) => name === object)?.[1] ?? [];
    const missing = Object.keys(fields)
      .filter((name) => !configured.includes(name))
      .filter((name) => found.every((schema) => partOf(schema, name.split(".")) === undefined));
    assert.deepEqual(missing, [], object);
  }
});

test("each setting of a key is in its JSON, so that forms begin with the present values", () => {
  const names = Object.keys({ ...makeKey.input, ...changeKey.input });
  const settings = names.filter((name) => !["account", "key", "operation_id"].includes(name));
  const { properties } = keyObject.schema;
  const missing = settings.filter((name) => !(name in properties || name in properties.limits.properties));
  assert.deepEqual(missing, []);
  assert.ok(settings.length > 5);
});

/** Columns of tables whose rows are no described objects, and columns that are no field. */
const ownTitles: Readonly<Record<string, string>> = {
  "cli/account.ts": "PROBLEM",
  "cli/balance.ts": "BUCKET,CREDITS,OF,LEFT,REFRESHES",
  "cli/config.ts": "SETTING,VALUE",
  "cli/plans.ts": "GRANTS",
  "web/console/pages/account-overview.tsx": "Time,Error",
  "web/console/pages/account-plan.tsx": "Credits,Before,After,Refreshes",
  "web/console/pages/models.tsx": "Change",
  "web/portal/pages/requests.tsx": "Details",
  "web/shared/charge.tsx": "Tokens,Count,× price per million,= credits",
  "web/shared/chart.tsx": "Time",
};

test("no table has a title of its own for a described field", () => {
  const src = join(import.meta.dirname, "../../src");
  const files = ["cli", "web"].flatMap((folder) =>
    readdirSync(join(src, folder), { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)),
  );
  const column = /\b(?:head|title): "([^"]+)"[^{}"]*\}?[^{}"]*\bcell\b/g;
  const found = files
    .filter((file) => /\.tsx?$/.test(file))
    .map((file) => [
      file,
      [...readFileSync(join(src, file), "utf8").matchAll(column)].map(([, title]) => title),
    ])
    .filter(([, titles]) => titles !== undefined && titles.length > 0)
    .map(([file, titles]) => [file, String(titles)]);
  const rule = "describe the field in src/actions/columns.ts; other columns are listed in this test";
  assert.deepEqual(Object.fromEntries(found), ownTitles, rule);
});
