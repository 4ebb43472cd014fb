/** What a reload changes, what needs a restart, and which models keep their engines. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { applicable, changesBetween, isEmpty, keepsEngine } from "../../src/config/changes.ts";
import type { Config } from "../../src/config/load.ts";
import { directory, load } from "../fixtures/configuration.ts";

const token = "operator-token-0123456789";
const base = `
plans:
  starter: { base: { credits: 10, every: P1D }, overage: { credits: 0, every: P1D } }
models:
  small: { engine: llama, source: /models/a.gguf, price: { prompt: 1, completion: 2 } }
  big: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 1, completion: 2 } }
`;

/** Both in one folder, so that paths agree. */
const data = directory();
const read = (yaml: string) => load(yaml, { INKWELL_DATA: data, INKWELL_OPERATOR_TOKEN: token });

function changes(before: string, after: string) {
  return changesBetween(read(before), read(after));
}

test("finds no change in an equal configuration, whatever its lines and order", () => {
  const moved = base.replace("models:", "\n\n# A comment.\nmodels:");
  assert.ok(isEmpty(changes(base, base)));
  assert.ok(isEmpty(changes(base, moved)));
});

test("knows every section of the configuration", () => {
  const compared = [
    "listen",
    "operator",
    "portal",
    "dataDir",
    "modelsDir",
    "database",
    "workers",
    "plans",
    "models",
    "personKeys",
    "signIn",
    "signInProblems",
  ];
  const fromEnvironment = ["sources", "client", "file", "ignoredVariables"];
  const { operator, ...sections } = read(base);
  // Add a new setting to src/config/changes.ts, and then here.
  assert.deepEqual(
    Object.keys({ operator, ...sections }).toSorted(),
    [
      ...compared,
      "limits",
      "cors",
      "log",
      "timezone",
      "currency",
      "tracing",
      "events",
      ...fromEnvironment,
    ].toSorted(),
  );
  assert.deepEqual(Object.keys(operator).toSorted(), [
    "host",
    "hosts",
    "port",
    "supportCredits",
    "token",
    "url",
  ]);
});

test("names added, removed and changed models", () => {
  const after = base.replace("small:", "other:").replace("model: m,", "model: n,");
  assert.deepEqual(changes(base, after).models, { added: ["other"], removed: ["small"], changed: ["big"] });
  assert.deepEqual(changes(base, after).prices, []);
});

test("names a changed price apart from the model, whose engine is kept", () => {
  const after = base.replace("prompt: 1, completion: 2", "prompt: 1, completion: 3");
  const { models, prices } = changes(base, after);
  assert.deepEqual([models.changed, prices], [[], ["small"]]);
});

describe("the engine of a model", () => {
  const of = (yaml: string): Config["models"][number] => {
    const [model] = read(yaml).models;
    assert.ok(model !== undefined);
    return model;
  };
  const rows: [change: string, isKept: boolean][] = [
    ["price: { prompt: 9, completion: 2 }", true],
    ["price: { prompt: 1, completion: 2 }, defaults: { max_tokens: 9 }", true],
    ["price: { prompt: 1, completion: 2 }, max_output_tokens: 9", true],
    ["price: { prompt: 1, completion: 2 }, system_prompt: Answer briefly.", true],
    ["price: { prompt: 1, completion: 2 }, context_window: 512", false],
    ["price: { prompt: 1, completion: 2 }, parallel: 2", false],
    ["price: { prompt: 1, completion: 2 }, threads: 2", false],
    ['price: { prompt: 1, completion: 2 }, reasoning: { tags: ["<a>", "</a>"] }', false],
  ];
  for (const [change, isKept] of rows) {
    test(`is ${isKept ? "kept" : "replaced"} with ${change}`, () => {
      const after = base.replace("price: { prompt: 1, completion: 2 }", change);
      assert.equal(keepsEngine(of(base), of(after)), isKept);
      if (!change.includes("price: { prompt: 9"))
        assert.deepEqual(changes(base, after).models.changed, ["small"]);
    });
  }

  test("is replaced if the errors of its server are passed on", () => {
    const [, before] = read(base).models;
    const passing = base.replace("model: m", "model: m, pass_errors: true");
    const [, after] = read(passing).models;
    assert.ok(before !== undefined && after !== undefined);
    assert.equal(keepsEngine(before, after), false);
    assert.deepEqual(changes(base, passing).models.changed, ["big"]);
  });

  test("is replaced if the engine is of another kind", () => {
    const upstream =
      'small: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 1, completion: 2 } }';
    assert.equal(keepsEngine(of(base), of(base.replace(/small: .*/, upstream))), false);
  });
});

test("leaves plans to the database, which compares them with its own", () => {
  assert.ok(isEmpty(changes(base, base.replace("credits: 10", "credits: 11"))));
});

test("names the rights of a plan over keys, but not those that nobody set", () => {
  const set = base.replace("every: P1D } }", "every: P1D }, keys: { most: 2 } }");
  const other = "  trial: { base: { credits: 1, every: P1D }, overage: { credits: 0, every: P1D } }\nmodels:";
  const two = base.replace("models:", other);
  assert.deepEqual(changes(two, base).settings, []);
  assert.deepEqual(changes(base, two).settings, []);
  assert.deepEqual(changes(base, set).settings, ["plans.starter.keys"]);
  assert.deepEqual(changes(set, base).settings, ["plans.starter.keys"]);
});

describe("names the setting", () => {
  const rows: [yaml: string, name: string][] = [
    ["limits: { body_bytes: 5000000, upload_bytes: 67108864 }", "limits.body_bytes"],
    ["limits: { upload_bytes: 5000000 }", "limits.upload_bytes"],
    ["limits: { upload_seconds: 7 }", "limits.upload_seconds"],
    ["limits: { refused_bytes_per_minute: 7 }", "limits.refused_bytes_per_minute"],
    ["limits: { refused_milliseconds_per_minute: 7 }", "limits.refused_milliseconds_per_minute"],
    ["limits: { connections: 7 }", "limits.connections"],
    ["limits: { connections_per_address: 7 }", "limits.connections_per_address"],
    ['limits: { trusted_proxies: ["10.0.0.0/8"] }', "limits.trusted_proxies"],
    ["limits: { messages: 7 }", "limits.messages"],
    ["limits: { keys: 700 }", "limits.keys"],
    ["limits: { queue: 7 }", "limits.queue"],
    ["limits: { unready_seconds: 7 }", "limits.unready_seconds"],
    ["limits: { drain_seconds: 7 }", "limits.drain_seconds"],
    ["limits: { stream_idle_seconds: 7 }", "limits.stream_idle_seconds"],
    ["timezone: Europe/Berlin", "timezone"],
    ["currency: { code: EUR, credits_1000: 2.5 }", "currency"],
    ['cors: { origins: ["https://a.example"] }', "cors.origins"],
    ["log: { level: warn }", "log.level"],
    ['listen: { url: "https://api.example" }', "listen.url"],
    ["operator: { hosts: [node-a] }", "operator.hosts"],
    ['operator: { url: "https://a.example" }', "operator.url"],
  ];
  for (const [yaml, name] of rows) {
    test(`${name}, which a reload applies`, () => {
      const { settings, needsRestart } = changes(base, `${base}${yaml}\n`);
      assert.deepEqual([settings, needsRestart], [[name], []]);
    });
  }

  const atStart: [yaml: string, name: string, env?: Record<string, string>][] = [
    ["listen: { host: 127.0.0.2 }", "listen.host"],
    ["listen: { port: 7 }", "listen.port"],
    ["operator: { host: 127.0.0.2 }", "operator.host"],
    ["operator: { port: 7 }", "operator.port"],
    ["portal: {}", "portal"],
    ["models_dir: ./elsewhere", "models_dir"],
    ["database: postgres://u:other@db.example/inkwell", "database"],
    ["tracing: { endpoint: http://127.0.0.1:4318 }", "tracing"],
    ["", "operator.token", { INKWELL_OPERATOR_TOKEN: `${token}-other` }],
  ];
  for (const [yaml, name, env = {}] of atStart) {
    test(`${name}, which needs a restart and keeps its value`, () => {
      const running = read(base);
      const next = load(`${base}${yaml}\n`, { INKWELL_DATA: data, INKWELL_OPERATOR_TOKEN: token, ...env });
      const { settings, needsRestart } = changesBetween(running, next);
      assert.deepEqual([settings, needsRestart], [[], [name]]);
      const applied = applicable(running, next);
      assert.ok(isEmpty(changesBetween(running, applied)), "the running value is kept");
      assert.deepEqual(changesBetween(applied, next).needsRestart, [name], "the next reload names it again");
    });
  }

  test("data, with everything that lies in it by default", () => {
    const next = load(base, { INKWELL_DATA: directory(), INKWELL_OPERATOR_TOKEN: token });
    assert.deepEqual(changesBetween(read(base), next).needsRestart, ["data", "models_dir", "database"]);
  });

  test("database, if only its password differs", () => {
    const of = (password: string) => `${base}database: postgres://u:${password}@db.example/inkwell\n`;
    assert.deepEqual(changes(of("one"), of("two")).needsRestart, ["database"]);
  });
});
