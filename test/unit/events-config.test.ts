/** The `events` section of the configuration. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of
// this form.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventSettingsOf, wantedEventsOf } from "../../src/config/events.ts";
import { eventTypes } from "../../src/ledger/events.ts";
import { load, refusesEach } from "../fixtures/configuration.ts";
import { secrets } from "../fixtures/webhook-receiver.ts";

const hook = (parts: string) => `events:\n  endpoints:\n    hook: { ${parts} }\n`;
const url = "url: https://hooks.example/in?a=b";

test("there are no events without the section", () => {
  const { events } = load("");
  assert.equal(events, null);
  assert.equal(eventSettingsOf(events), null);
  assert.deepEqual(wantedEventsOf(events), []);
});

test("reads endpoints and mail, with defaults", () => {
  const text = `events:
  thresholds: [100, 50, 50]
  expiring_days: 3
  networks: ["10.0.0.0/8"]
  endpoints:
    hook: { ${url}, secret: "\${HOOK}", previous_secret: ${secrets.previous}, types: ["balance.*", key.created] }
    all: { url: "http://10.0.0.7:80/x", secret: ${secrets.current} }
  mail: { host: mail.example, from: "Inkwell <inkwell@x.example>", operators: [ops@x.example], off: [key.expiring] }
`;
  const { events } = load(text, { HOOK: secrets.current });
  assert.deepEqual(events?.endpoints, [
    {
      name: "hook",
      url: "https://hooks.example/in?a=b",
      secrets: [secrets.current, secrets.previous],
      types: ["balance.low", "balance.exhausted", "key.created"],
    },
    { name: "all", url: "http://10.0.0.7:80/x", secrets: [secrets.current], types: [...eventTypes] },
  ]);
  assert.deepEqual(eventSettingsOf(events), { thresholdPercents: [50, 100] });
  assert.equal(events.expiringMs, 3 * 86_400_000);
  assert.deepEqual(events.mail, {
    host: "mail.example",
    port: 587,
    tls: "required",
    user: null,
    password: null,
    from: "Inkwell <inkwell@x.example>",
    operators: ["ops@x.example"],
    templates: null,
    types: [
      "balance.low",
      "balance.cap",
      "balance.exhausted",
      "key.created",
      "operator.key_created",
      "operator.role_given",
      "audit.failed",
      "model.down",
      "model.out_of_credit",
    ],
  });
  assert.deepEqual(
    wantedEventsOf(events).map(({ name, types }) => [name, types.size]),
    [
      ["hook", 3],
      ["all", eventTypes.length],
      ["mail", 8],
    ],
  );
});

const good = `${url}, secret: ${secrets.current}`;

refusesEach({
  "events: { thresholds: [80] }":
    /^inkwell\.yaml:1: events has neither endpoints nor mail, so nothing would receive its events$/,
  [hook(`${url}, secret: whsec_short`)]:
    /hook\.secret: found a text of 11 characters \(not shown\), expected whsec_ and 24 to 64 random bytes in base64/,
  [hook(url)]: /^inkwell\.yaml:3: events\.endpoints\.hook\.secret is missing; expected whsec_/,
  [hook(`url: "https://u:p@hooks.example", secret: ${secrets.current}`)]:
    /hook\.url: found "https:\/\/\.\.\.@hooks\.example", expected a URL that begins with http:\/\/ or https:\/\/, without a user or a fragment$/,
  [hook(`${good}, types: [balance.lo]`)]:
    /hook\.types\[0\]: found "balance\.lo", expected a type of event \(balance\.low, .*\), or all of a topic such as "balance\.\*"$/,
  [hook(good).replace("hook", "mail")]:
    /^inkwell\.yaml:3: events\.endpoints\.mail: "mail" is the name of the mail server; choose another one$/,
  [`events:\n  thresholds: [101]\n  endpoints: { hook: { ${good} } }\n`]:
    /^inkwell\.yaml:2: events\.thresholds\[0\]: found 101, expected a whole number from 1 to 100$/,
  // Their events would be deleted before that.
  [`events:\n  expiring_days: 31\n  endpoints: { hook: { ${good} } }\n`]:
    /^inkwell\.yaml:2: events\.expiring_days: found 31, expected a whole number from 1 to 30$/,
  "events: { mail: { host: mail.example, from: a@b.example, user: me } }":
    /^inkwell\.yaml:1: events\.mail: user and password go together; set both or none of them$/,
  'events: { mail: { host: mail.example, from: "a\\r\\nb@c" } }':
    /events\.mail\.from: found .*, expected an e-mail address, or a name with one: Inkwell <inkwell@example\.edu>$/,
});
