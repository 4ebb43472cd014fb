/** The configuration: what is read from file and environment, and what an operator is told about a wrong one. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of this form.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, describe, test } from "node:test";
import type { LlamaModelConfig } from "../../src/config/model.ts";
import { type Config, loadConfig, operatorToken } from "../../src/config.ts";
import { OperatorError } from "../../src/errors.ts";

const folder = mkdtempSync(path.join(tmpdir(), "inkwell-config-"));
after(() => rmSync(folder, { recursive: true }));

let folders = 0;
type Env = Record<string, string>;

/** A working directory with this `inkwell.yaml`. */
function directory(yaml?: string): string {
  const cwd = path.join(folder, String(folders++));
  mkdirSync(cwd);
  if (yaml !== undefined) writeFileSync(path.join(cwd, "inkwell.yaml"), yaml);
  return cwd;
}

function load(yaml: string | undefined, env: Env = {}): Config {
  return loadConfig({ cwd: directory(yaml), env });
}

/** The problems of a configuration, one a line, without the head line. */
function problemsOf(yaml: string | undefined, env: Env = {}): string[] {
  try {
    load(yaml, env);
  } catch (error) {
    assert.ok(error instanceof OperatorError, String(error));
    return error.message
      .split("\n")
      .slice(1)
      .map((line) => line.trim());
  }
  return [];
}

const price = "price: { prompt: 1, completion: 2 }";
const oneModel = `models: { small: { engine: llama, source: default, ${price} } }`;

/** The first model, which must be one of our own engine. */
function llama({ models: [model] }: Config): LlamaModelConfig {
  assert.ok(model?.engine === "llama");
  return model;
}

test("without a file and without variables, the defaults run", () => {
  const cwd = directory();
  const config = loadConfig({ cwd, env: {} });
  assert.deepEqual(config.listen, { host: "127.0.0.1", port: 8080 });
  assert.deepEqual(config.operator, { host: "127.0.0.1", port: 8081, token: null });
  assert.equal(config.file, null);
  assert.equal(config.dataDir, path.join(cwd, "data"));
  assert.equal(config.modelsDir, path.join(cwd, "data/models"));
  assert.deepEqual(config.database, { kind: "sqlite", path: path.join(cwd, "data/inkwell.db") });
  assert.deepEqual(config.limits, {
    bodyBytesMax: 4_194_304,
    messagesMax: 2048,
    queueMax: 256,
    unreadyMs: 0,
    drainMs: 30_000,
    streamIdleMs: 120_000,
  });
  assert.deepEqual([...config.plans.keys()], ["starter"]);
  assert.deepEqual(config.models, [
    {
      id: "smollm2-135m-instruct",
      engine: "llama",
      source: "default",
      contextWindow: 8192,
      parallel: 4,
      threads: null,
      gpu: "auto",
      price: { prompt: 10, completion: 30 },
      reasoning: null,
    },
  ]);
});

test("the example file says what the defaults are", () => {
  const cwd = directory();
  const defaults = loadConfig({ cwd, env: {} });
  const example = loadConfig({
    cwd,
    file: path.resolve(import.meta.dirname, "../../inkwell.example.yaml"),
    env: {},
  });
  const { file: _, dataDir: __, modelsDir: ___, database: ____, ...values } = example;
  const { file: _____, dataDir: ______, modelsDir: _______, database: ________, ...expected } = defaults;
  assert.deepEqual(values, expected);
});

test("an empty file is the defaults, and so is a section whose keys are all commented out", () => {
  assert.equal(load("").listen.port, 8080);
  assert.equal(load("listen:\n  # port: 1\nlimits:\n").limits.queueMax, 256);
});

describe("the environment", () => {
  test("sets the values that have a name of their own", () => {
    const token = "a-token-of-the-operator";
    const cwd = directory();
    const config = loadConfig({
      cwd,
      env: {
        INKWELL_HOST: "0.0.0.0",
        INKWELL_PORT: "1",
        INKWELL_OPERATOR_HOST: "::",
        INKWELL_OPERATOR_PORT: "0",
        INKWELL_OPERATOR_TOKEN: token,
        INKWELL_DATA: "elsewhere",
        INKWELL_MODELS: "/srv/models",
        INKWELL_DATABASE: "sqlite:ledger.db",
      },
    });
    assert.deepEqual(config.listen, { host: "0.0.0.0", port: 1 });
    assert.deepEqual(config.operator, { host: "::", port: 0, token });
    assert.equal(config.dataDir, path.join(cwd, "elsewhere"));
    assert.equal(config.modelsDir, "/srv/models");
    assert.deepEqual(config.database, { kind: "sqlite", path: path.join(cwd, "ledger.db") });
  });

  test("moves the ledger and the models along with the data folder", () => {
    const config = load(undefined, { INKWELL_DATA: "/srv/inkwell" });
    assert.equal(config.modelsDir, "/srv/inkwell/models");
    assert.deepEqual(config.database, { kind: "sqlite", path: "/srv/inkwell/inkwell.db" });
  });

  test("sets every other value by its path, over the file", () => {
    const config = load(`${oneModel}\nlimits: { queue: 5, messages: 7 }`, {
      INKWELL_LIMITS__QUEUE: "64",
      INKWELL_MODELS__SMALL__PRICE__PROMPT: "9",
      INKWELL_MODELS__SMALL__REASONING__TAGS: "<a>, </a>",
      INKWELL_CORS__ORIGINS: "https://a.example,https://b.example",
      INKWELL_LOG__LEVEL: "debug",
    });
    assert.equal(config.limits.queueMax, 64);
    assert.equal(config.limits.messagesMax, 7);
    assert.deepEqual(config.models[0]?.price, { prompt: 9, completion: 2 });
    assert.deepEqual(config.models[0]?.reasoning, { tags: ["<a>", "</a>"] });
    assert.deepEqual(config.cors.origins, ["https://a.example", "https://b.example"]);
    assert.equal(config.log.level, "debug");
  });

  test("names a plan or model with other characters by underscores", () => {
    const config = load(undefined, { INKWELL_MODELS__SMOLLM2_135M_INSTRUCT__PARALLEL: "2" });
    assert.equal(config.models[0]?.parallel, 2);
  });

  test("can add a plan that the file does not have", () => {
    const plan = "INKWELL_PLANS__BIG_SPENDER";
    const config = load(undefined, {
      [`${plan}__BASE__CREDITS`]: "5",
      [`${plan}__BASE__EVERY`]: "PT5H",
      [`${plan}__OVERAGE__CREDITS`]: "0",
      [`${plan}__OVERAGE__EVERY`]: "P1M",
    });
    assert.deepEqual(config.plans.get("big-spender"), {
      id: "big-spender",
      base: { credits: 5, every: "PT5H" },
      overage: { credits: 0, every: "P1M" },
      limits: {},
      models: ["*"],
    });
  });

  test("counts a variable that is set to nothing as not set", () => {
    const config = load(undefined, { INKWELL_PORT: "", INKWELL_LIMITS__QUEUE: "", INKWELL_CONFIG: "" });
    assert.equal(config.listen.port, 8080);
    assert.equal(config.limits.queueMax, 256);
  });

  test("is left alone where a variable has no path in its name", () => {
    assert.deepEqual(problemsOf(undefined, { INKWELL_SERVICE_HOST: "10.0.0.1", OTHER__THING: "1" }), []);
  });

  test("gives the settings for fetching models, and nothing else of itself", () => {
    const { sources } = load(undefined, {
      HF_ENDPOINT: "https://hub.example/",
      HF_TOKEN: "hf_secret",
      PIP_INDEX_URL: "https://index.example/simple",
      https_proxy: "http://proxy.example:3128",
      HOME: "/home/someone",
      AWS_SECRET_ACCESS_KEY: "not for us",
    });
    assert.deepEqual(sources, {
      hubUrl: "https://hub.example",
      hubToken: "hf_secret",
      env: {
        PIP_INDEX_URL: "https://index.example/simple",
        https_proxy: "http://proxy.example:3128",
      },
      home: "/home/someone",
    });
  });
});

test("child processes see the environment without our settings and secrets", () => {
  const { childEnvironment } = load(undefined, {
    PATH: "/bin",
    INKWELL_OPERATOR_TOKEN: "x".repeat(20),
    HF_TOKEN: "hf",
  });
  assert.deepEqual(childEnvironment, { PATH: "/bin" });
});

describe("the file", () => {
  test("is the one that --config names, before INKWELL_CONFIG, before inkwell.yaml", () => {
    const cwd = directory("listen: { port: 1 }");
    writeFileSync(path.join(cwd, "two.yaml"), "listen: { port: 2 }");
    writeFileSync(path.join(cwd, "three.yaml"), "listen: { port: 3 }");
    const env = { INKWELL_CONFIG: "two.yaml" };
    assert.equal(loadConfig({ cwd, env: {} }).listen.port, 1);
    assert.equal(loadConfig({ cwd, env }).listen.port, 2);
    assert.equal(loadConfig({ cwd, env, file: "three.yaml" }).listen.port, 3);
  });

  test("must exist where it is named", () => {
    const cwd = directory();
    assert.throws(
      () => loadConfig({ cwd, env: { INKWELL_CONFIG: "no.yaml" } }),
      /INKWELL_CONFIG names .*no\.yaml/,
    );
    assert.throws(() => loadConfig({ cwd, env: {}, file: "no.yaml" }), /--config names .*no\.yaml/);
  });

  test("is not silently passed over when it is called inkwell.yml", () => {
    const cwd = directory();
    writeFileSync(path.join(cwd, "inkwell.yml"), "");
    assert.throws(() => loadConfig({ cwd, env: {} }), /must be called inkwell\.yaml/);
  });

  test("has its paths start from its own folder, variables theirs from the working directory", () => {
    const cwd = directory();
    mkdirSync(path.join(cwd, "etc"));
    writeFileSync(path.join(cwd, "etc/my.yaml"), `data: ../var\n${oneModel.replace("default", "m/a.gguf")}`);
    const config = loadConfig({ cwd, file: "etc/my.yaml", env: { INKWELL_MODELS: "cache" } });
    assert.equal(config.dataDir, path.join(cwd, "var"));
    assert.equal(config.modelsDir, path.join(cwd, "cache"));
    assert.deepEqual(llama(config).source, path.join(cwd, "etc/m/a.gguf"));
  });

  test("has its own plans and models instead of the default ones", () => {
    const config = load(oneModel);
    assert.deepEqual(
      config.models.map((model) => model.id),
      ["small"],
    );
    assert.deepEqual([...config.plans.keys()], ["starter"]);
  });

  test("may use anchors", () => {
    const config = load(`models:
  a: { engine: llama, source: default, price: &p { prompt: 3, completion: 4 } }
  b: { engine: llama, source: default, price: *p }`);
    assert.deepEqual(config.models[1]?.price, { prompt: 3, completion: 4 });
  });

  test("knows every form of a model's source", () => {
    for (const source of [
      "default",
      "/m/a.gguf",
      "hf:owner/repo@main/deep/a.gguf",
      "https://a.example/a.gguf?x=1",
    ]) {
      assert.equal(llama(load(oneModel.replace("default", `"${source}"`))).source, source);
    }
  });

  test("says how a model thinks, that it does not, or leaves it to the model", () => {
    const reasoning = (written: string) =>
      load(oneModel.replace("price:", `${written} price:`)).models[0]?.reasoning;
    assert.deepEqual(reasoning("reasoning: { tags: [a, b] },"), { tags: ["a", "b"] });
    assert.deepEqual(reasoning("reasoning: { tags: [] },"), { tags: null });
    assert.equal(reasoning(""), null);
  });

  test("names an upstream, or several, and how it is spoken to", () => {
    const config = load(
      `models:
  big:
    engine: upstream
    url: https://llm.example/v1
    key: \${BIG_KEY}
    model: vendor/big
    ${price}
    reasoning: { field: reasoning_content }
  wide:
    engine: upstream
    urls: [http://a:8000/v1, http://b:8000/v1]
    model: wide
    dialect: vllm
    context_window: 131072
    parallel: 200
    connect_seconds: 2
    headers_seconds: 600
    idle_seconds: 30
    ${price}
    reasoning: { tags: ["<think>", "</think>"], opened: true }`,
      { BIG_KEY: "k1" },
    );
    const [big, wide] = config.models;
    assert.deepEqual(big, {
      id: "big",
      engine: "upstream",
      urls: ["https://llm.example/v1"],
      key: "k1",
      model: "vendor/big",
      dialect: "compatible",
      contextWindow: 8192,
      parallel: 64,
      price: { prompt: 1, completion: 2 },
      connectMs: 5000,
      headersMs: 120_000,
      idleMs: 60_000,
      reasoning: { field: "reasoning_content", tags: null, opened: false },
    });
    assert.deepEqual(wide, {
      ...big,
      id: "wide",
      urls: ["http://a:8000/v1", "http://b:8000/v1"],
      key: null,
      model: "wide",
      dialect: "vllm",
      contextWindow: 131_072,
      parallel: 200,
      connectMs: 2000,
      headersMs: 600_000,
      idleMs: 30_000,
      reasoning: { field: null, tags: ["<think>", "</think>"], opened: true },
    });
  });

  test("may be an upstream from variables alone", () => {
    const config = load(undefined, {
      INKWELL_MODELS__BIG__ENGINE: "upstream",
      INKWELL_MODELS__BIG__URLS: "http://a/v1,http://b/v1",
      INKWELL_MODELS__BIG__KEY: "k2",
      INKWELL_MODELS__BIG__MODEL: "vendor/big",
      INKWELL_MODELS__BIG__REASONING__OPENED: "true",
      INKWELL_MODELS__BIG__REASONING__TAGS: "<a>,</a>",
      INKWELL_MODELS__BIG__PRICE__PROMPT: "1",
      INKWELL_MODELS__BIG__PRICE__COMPLETION: "2",
    });
    const big = config.models.find(({ id }) => id === "big");
    assert.ok(big?.engine === "upstream");
    assert.deepEqual([big.urls, big.key], [["http://a/v1", "http://b/v1"], "k2"]);
    assert.deepEqual(big.reasoning, { field: null, tags: ["<a>", "</a>"], opened: true });
  });

  test("chooses what the model runs on", () => {
    const gpu = (value: string) => llama(load(oneModel.replace("price:", `gpu: ${value}, price:`))).gpu;
    assert.equal(gpu("vulkan"), "vulkan");
    assert.equal(gpu("off"), "off");
  });

  test("has ${NAME} replaced from the environment, also in numbers and lists, and $${ kept as ${", () => {
    const config = load(
      `listen:\n  port: \${MY_PORT}\ncors: { origins: ["https://\${HOST}"] }\ndata: /a/$\${b}\n`,
      { MY_PORT: "77", HOST: "a.example" },
    );
    assert.equal(config.listen.port, 77);
    assert.deepEqual(config.cors.origins, ["https://a.example"]);
    assert.equal(config.dataDir, "/a/${b}");
  });
});

describe("a wrong configuration", () => {
  test("is told completely in one message, by line, then by variable", () => {
    const yaml = `listen: { port: 99999 }
limts: { queue: 3 }
limits:
  queue: many
`;
    assert.deepEqual(problemsOf(yaml, { INKWELL_LIMITS__QEUE: "3", INKWELL_OPERATOR_PORT: "x" }), [
      "inkwell.yaml:1: listen.port: found 99999, expected a port from 0 to 65535 (0: any free one)",
      "inkwell.yaml:2: limts is not known; did you mean limits?",
      'inkwell.yaml:4: limits.queue: found "many", expected a whole number from 1 to 100000',
      'INKWELL_OPERATOR_PORT: operator.port: found "x", expected a port from 0 to 65535 (0: any free one)',
      "INKWELL_LIMITS__QEUE: this variable names no value of the configuration; did you mean INKWELL_LIMITS__QUEUE?",
    ]);
  });

  const plan = (inside: string) => `plans:\n  p:\n${inside}\n`;
  const goodOverage = "    overage: { credits: 0, every: P1M }";
  const cases: [sentence: string, yaml: string | undefined, env: Env, problem: RegExp][] = [
    [
      "a key given twice is named",
      "listen: { port: 1 }\nlisten: { port: 2 }",
      {},
      /^inkwell\.yaml:2: .*unique/,
    ],
    [
      "a key given twice is told alone: what stands under it is anybody's guess",
      "plans:\n  p: { base: 1 }\nplans:\nlisten: 5",
      {},
      /^inkwell\.yaml:3: this is not valid YAML: Map keys must be unique$/,
    ],
    [
      "an alias of nothing is no YAML",
      "plans: *nowhere",
      {},
      /^inkwell\.yaml:1: this is not valid YAML: nothing above is called &nowhere$/,
    ],
    [
      "a list of models is told once, and says what would be right",
      `models:\n- ${oneModel}\nplans: { p: { base: { credits: 1, every: P1D }, overage: { credits: 1, every: P1D }, models: [small] } }`,
      {},
      /^inkwell\.yaml:1: models: found a list, expected a map of names, each with its own keys$/,
    ],
    [
      "plans that are no map are not also empty",
      "plans: starter",
      {},
      /^inkwell\.yaml:1: plans: found "starter", expected a map of names, each with its own keys$/,
    ],
    [
      "a tab as indentation is no YAML",
      "listen:\n\tport: 1",
      {},
      /^inkwell\.yaml:2: this is not valid YAML: .*[Tt]ab/,
    ],
    ["a list at the top is no configuration", "- a", {}, /^inkwell\.yaml:1: found a list, expected keys/],
    [
      "a section that is no map says its keys",
      "listen: 8080",
      {},
      /^inkwell\.yaml:1: listen: found 8080, expected a map with the keys host, port$/,
    ],
    [
      "an unknown key far from any other lists the keys",
      "listen: { colour: 1 }",
      {},
      /listen\.colour is not known; the keys here are host, port/,
    ],
    ["a number in quotes is no number", 'listen: { port: "80" }', {}, /found "80", expected a port/],
    ["a fraction is no whole number", "limits: { queue: 1.5 }", {}, /limits\.queue: found 1\.5/],
    ["a value left empty is none", "data:", {}, /data: found nothing, expected a path/],
    [
      "a host with a port is refused",
      "listen: { host: 'a.example:80' }",
      {},
      /listen\.host: .*without a port/,
    ],
    ["an address out of range is refused", "listen: { host: 1.2.3.456 }", {}, /listen\.host/],
    [
      "both listeners on one port are refused",
      "operator: { port: 8080 }",
      {},
      /operator\.port: 8080 is also the port of listen/,
    ],
    [
      "an open operator listener needs a token",
      "operator: { host: 0.0.0.0 }",
      {},
      /inkwell\.yaml:1: operator\.host: 0\.0\.0\.0 can be reached.*INKWELL_OPERATOR_TOKEN/,
    ],
    [
      "a short operator token is refused and not repeated",
      undefined,
      { INKWELL_OPERATOR_TOKEN: "hunter2" },
      /^INKWELL_OPERATOR_TOKEN: operator\.token: found something else, expected at least 16/,
    ],
    [
      "a missing variable is named",
      "data: ${NOWHERE}/data",
      {},
      /inkwell\.yaml:1: the environment variable NOWHERE is not set/,
    ],
    [
      "a malformed replacement is explained",
      "data: ${NO WHERE}",
      {},
      /expected \$\{NAME\}; write \$\$\{ for a plain/,
    ],
    [
      "an unquoted replacement inside braces is explained",
      "listen: { host: ${HOST} }",
      { HOST: "a" },
      /in quotes: "\$\{NAME\}"/,
    ],
    [
      "a value from a replacement is not repeated",
      "log: { level: '${LEVEL}' }",
      { LEVEL: "s3cret" },
      /log\.level: found "\$\{LEVEL\}", expected info/,
    ],
    [
      "an address of PostgreSQL that is none is refused, and its password not repeated",
      undefined,
      { INKWELL_DATABASE: "postgres://u:s3cr/et@h:x/d" },
      /^INKWELL_DATABASE: database: found something else, expected sqlite:PATH, such as sqlite:\.\/data\/inkwell\.db, or postgres:\/\/USER/,
    ],
    [
      "any other database is refused, and its address not repeated",
      undefined,
      { INKWELL_DATABASE: "mysql://u:p@h/d" },
      /database: found something else, expected sqlite:PATH/,
    ],
    [
      "a variable set by the wrong name says the right one",
      undefined,
      { INKWELL_LISTEN__PORT: "1" },
      /INKWELL_LISTEN__PORT: listen\.port is set by INKWELL_PORT/,
    ],
    [
      "a port that Kubernetes set is explained",
      undefined,
      { INKWELL_PORT: "tcp://10.0.0.1:8080" },
      /enableServiceLinks: false/,
    ],
    ["no plan at all is refused", "plans: {}", {}, /plans is empty; there must be at least one plan/],
    ["no model at all is refused", "models: {}", {}, /models is empty; there must be at least one model/],
    [
      "a plan without its base bucket is refused",
      plan(goodOverage),
      {},
      /inkwell\.yaml:2: plans\.p\.base\.credits is missing/,
    ],
    [
      "a plan's name is plain",
      "plans: { Big Plan: {} }",
      {},
      /plans: found the name "Big Plan", expected 1 to 64 characters/,
    ],
    [
      "a bucket that is a number is not also missing its keys",
      plan("    base: { credits: 1, every: P1D }\n    overage: 5"),
      {},
      /^inkwell\.yaml:4: plans\.p\.overage: found 5, expected a map with the keys credits, every$/,
    ],
    [
      "credits are whole",
      plan(`    base: { credits: 1.5, every: P1D }\n${goodOverage}`),
      {},
      /inkwell\.yaml:3: plans\.p\.base\.credits: found 1\.5, expected whole credits/,
    ],
    [
      "credits have an upper bound",
      plan(`    base: { credits: 9000001, every: P1D }\n${goodOverage}`),
      {},
      /from 0 to 9000000/,
    ],
    [
      "a plan names models that exist",
      plan(`    base: { credits: 1, every: P1D }\n${goodOverage}\n    models: [smollm2-135m-instuct]`),
      {},
      /inkwell\.yaml:5: plans\.p\.models: there is no model "smollm2-135m-instuct"; did you mean smollm2-135m-instruct\?/,
    ],
    [
      "a plan's models are a list",
      plan(`    base: { credits: 1, every: P1D }\n${goodOverage}\n    models: all`),
      {},
      /plans\.p\.models: found "all", expected a list of model ids/,
    ],
    [
      "a limit of nothing is refused",
      plan(`    base: { credits: 1, every: P1D }\n${goodOverage}\n    limits: { concurrent: 0 }`),
      {},
      /plans\.p\.limits\.concurrent: found 0/,
    ],
    [
      "a model without a price would be free",
      "models:\n  m: { engine: llama, source: default }",
      {},
      /^inkwell\.yaml:2: models\.m\.price is missing: without it the model would be free for everybody/,
    ],
    [
      "half a price is refused",
      "models: { m: { engine: llama, source: default, price: { prompt: 1 } } }",
      {},
      /models\.m\.price\.completion is missing; expected whole credits per million tokens/,
    ],
    [
      "a price is whole",
      "models: { m: { engine: llama, source: default, price: { prompt: 0.5, completion: 1 } } }",
      {},
      /price\.prompt: found 0\.5, expected whole credits/,
    ],
    [
      "a price is not negative",
      "models: { m: { engine: llama, source: default, price: { prompt: 1, completion: -1 } } }",
      {},
      /price\.completion: found -1/,
    ],
    [
      "an engine that does not exist is refused",
      `models: { m: { engine: lama, source: default, ${price} } }`,
      {},
      /models\.m\.engine: found "lama", expected llama or upstream/,
    ],
    [
      "a source that is no model file is refused",
      `models: { m: { engine: llama, source: a.bin, ${price} } }`,
      {},
      /models\.m\.source: model source a\.bin is not understood/,
    ],
    [
      "a hub reference without a file is refused",
      `models: { m: { engine: llama, source: "hf:owner/repo", ${price} } }`,
      {},
      /models\.m\.source/,
    ],
    [
      "one think tag is not enough",
      `models: { m: { engine: llama, source: default, ${price}, reasoning: { tags: [a] } } }`,
      {},
      /reasoning\.tags: found 1 texts, expected two texts/,
    ],
    [
      "an upstream's address is one",
      `models:\n  m:\n    engine: upstream\n    url: a.example\n    model: x\n    ${price}`,
      {},
      /^inkwell\.yaml:4: models\.m\.url: found something else, expected an address/,
    ],
    [
      "an upstream's address ends before the path of chat requests",
      `models: { m: { engine: upstream, url: "https://a.example/v1/chat/completions", model: x, ${price} } }`,
      {},
      /models\.m\.url: .* ends before \/chat\/completions/,
    ],
    [
      "a password in an upstream's address is refused, and not repeated",
      `models: { m: { engine: upstream, url: "https://me:hidden@a.example/v1", model: x, ${price} } }`,
      {},
      /models\.m\.url: found something else.*the key goes into key/,
    ],
    [
      "an upstream without an address is refused",
      `models: { m: { engine: upstream, model: x, ${price} } }`,
      {},
      /models\.m\.url is missing; expected an address/,
    ],
    [
      "url and urls together are refused",
      `models: { m: { engine: upstream, url: "http://a", urls: ["http://b"], model: x, ${price} } }`,
      {},
      /models\.m: found both url and urls, expected one of them/,
    ],
    [
      "an upstream's name for the model is required",
      `models: { m: { engine: upstream, url: "http://a", ${price} } }`,
      {},
      /models\.m\.model is missing; expected the model's name at the upstream/,
    ],
    [
      "a dialect that nobody speaks is refused",
      `models: { m: { engine: upstream, url: "http://a", model: x, dialect: tgi, ${price} } }`,
      {},
      /models\.m\.dialect: found "tgi", expected compatible, openai, vllm, sglang, llama-server or ollama/,
    ],
    [
      "what only our own engine has is refused at an upstream",
      `models: { m: { engine: upstream, url: "http://a", model: x, threads: 2, ${price} } }`,
      {},
      /models\.m\.threads is not known/,
    ],
    [
      "an origin has no path",
      "cors: { origins: ['https://a.example/'] }",
      {},
      /cors\.origins\[0\]: found "https:\/\/a\.example\/", expected an origin/,
    ],
    [
      "an alias inside its own value is refused",
      "plans: &a { p: *a }",
      {},
      /this alias stands inside the value/,
    ],
    [
      "a hub address that is none is refused",
      undefined,
      { HF_ENDPOINT: "hub.example" },
      /^HF_ENDPOINT: found "hub\.example", expected an address/,
    ],
    [
      "a variable that two models share is refused",
      `models:\n  a-b: { engine: llama, source: default, ${price} }\n  a.b: { engine: llama, source: default, ${price} }`,
      { INKWELL_MODELS__A_B__PARALLEL: "1" },
      /names both models\.a-b and models\.a\.b/,
    ],
  ];
  for (const [sentence, yaml, env, problem] of cases) {
    test(sentence, () => {
      const problems = problemsOf(yaml, env);
      assert.ok(
        problems.some((each) => problem.test(each)),
        `none of\n  ${problems.join("\n  ")}\nis ${problem}`,
      );
      assert.doesNotMatch(problems.join("\n"), /hunter2|s3cret|u:p@h/, "a secret is repeated");
    });
  }

  test("with one mistake has one message", () => {
    for (const [sentence, yaml, env] of cases) {
      const several =
        /without its base bucket|no plan at all|plain|own mistakes|malformed|missing variable|does not exist|alias/;
      if (several.test(sentence)) continue;
      assert.equal(problemsOf(yaml, env).length, 1, `${sentence}: ${problemsOf(yaml, env).join(" | ")}`);
    }
  });
});

test("a period is positive, whole, and either calendar or clock", () => {
  const plan = (every: string) =>
    `plans: { p: { base: { credits: 1, every: "${every}" }, overage: { credits: 0, every: P1M } } }`;
  for (const good of ["PT5H", "PT1M", "P1D", "P1W", "P1M", "P1Y", "P1Y6M", "P1DT12H", "PT90M", "P10Y"]) {
    assert.deepEqual(problemsOf(plan(good)), [], good);
  }
  const bad = [
    "P",
    "PT",
    "P0D",
    "-P1D",
    "+P1D",
    "P1.5D",
    "PT1.5H",
    "PT30S",
    "P1M1D",
    "P1MT1H",
    "p1d",
    "1d",
    "P1DT",
    "P11Y",
    "P99999999D",
    "daily",
    "",
  ];
  for (const each of bad) assert.match(problemsOf(plan(each)).join(), /base\.every: found .*ISO 8601/, each);
});

describe("the operator token", () => {
  const at = (dataDir: string, env: Env = {}) =>
    operatorToken(load(undefined, { INKWELL_DATA: dataDir, ...env }));

  test("is made once, for its owner's eyes only, and is the same afterwards", async () => {
    const dataDir = path.join(directory(), "deep/data");
    const [first, second] = await Promise.all([at(dataDir), at(dataDir)]);
    assert.match(first.token, /^[\w-]{43}$/);
    assert.deepEqual(second, first);
    assert.equal(first.file, path.join(dataDir, "operator-token"));
    assert.equal(statSync(first.file).mode & 0o777, 0o600);
    assert.deepEqual(await at(dataDir), first);
  });

  test("is the configured one where there is one, and no file is made", async () => {
    const dataDir = path.join(directory(), "data");
    const token = "configured-by-the-operator";
    assert.deepEqual(await at(dataDir, { INKWELL_OPERATOR_TOKEN: token }), { token, file: null });
    assert.throws(() => statSync(dataDir));
  });

  test("is not taken from a file that holds none", async () => {
    const dataDir = directory();
    writeFileSync(path.join(dataDir, "operator-token"), "short\n");
    await assert.rejects(at(dataDir), /operator-token must be at least 16 characters.*Delete the file/);
  });

  test("says which folder cannot be written", async () => {
    const file = path.join(directory(""), "inkwell.yaml");
    await assert.rejects(at(path.join(file, "data")), (error: unknown) => {
      assert.ok(error instanceof OperatorError);
      assert.match(error.message, /operator-token cannot be read or made/);
      return true;
    });
  });
});
