/**
 * The configuration from file and environment. Invalid configurations: config-problems.test.ts.
 */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of
// this form.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import os from "node:os";
import path from "node:path";
import { describe, test } from "node:test";
import { engineEnvironment } from "../../src/config/engine-environment.ts";
import { type Config, loadConfig } from "../../src/config/load.ts";
import type { LlamaModelConfig } from "../../src/config/model.ts";
import { operatorNames, readOperatorToken } from "../../src/config/operator.ts";
import { portalNames } from "../../src/config/portal.ts";
import { settingVariables } from "../../src/config/variables.ts";
import { OperatorError } from "../../src/errors.ts";
import {
  directory,
  type Env,
  load,
  oneModel,
  price,
  problemsOf,
  withoutPlaces,
} from "../fixtures/configuration.ts";

/** The first model, which must be one of our own engine. */
function llama({ models: [model] }: Config): LlamaModelConfig {
  assert.ok(model?.engine === "llama");
  return model;
}

test("uses the defaults without a file and without variables", () => {
  const cwd = directory();
  const config = loadConfig({ cwd, env: {} });
  assert.equal(config.currency, null);
  assert.deepEqual(config.listen, { host: "127.0.0.1", port: 8080, url: null });
  assert.deepEqual(config.operator, {
    host: "127.0.0.1",
    port: 8081,
    token: null,
    url: null,
    hosts: [],
    supportCredits: 0,
  });
  assert.equal(config.portal, null);
  assert.equal(config.file, null);
  assert.equal(config.dataDir, path.join(cwd, "data"));
  assert.equal(config.modelsDir, path.join(cwd, "data/models"));
  assert.deepEqual(config.database, { kind: "sqlite", path: path.join(cwd, "data/inkwell.db") });
  assert.deepEqual(config.limits, {
    bodyBytesMax: 4_194_304,
    uploadBytesMax: 67_108_864,
    uploadMs: 120_000,
    refusedBytesPerMinute: 125_829_120,
    refusedMsPerMinute: 2_400,
    connectionsMax: null,
    connectionsPerAddressMax: null,
    trustedProxies: [],
    messagesMax: 2048,
    keysMax: 32_768,
    queueMax: 256,
    unreadyMs: 0,
    drainMs: 30_000,
    streamIdleMs: 120_000,
  });
  assert.deepEqual([...config.plans.keys()], ["starter"]);
  assert.deepEqual(config.models, [
    {
      id: "smollm2-135m-instruct",
      where: "the defaults:9",
      engine: "llama",
      source: "default",
      contextWindow: 8192,
      outputTokensMax: null,
      parallel: 4,
      threads: null,
      pausedBytesMax: 1_073_741_824,
      gpu: "auto",
      loadMs: null,
      environment: {},
      defaults: { temperature: 0.2, topP: 0.9, frequencyPenalty: 0.4, maxTokens: 400 },
      systemPrompt: "Be helpful, correct and concise.",
      price: { prompt: 20_000, completion: 100_000 },
      reasoning: null,
    },
  ]);
});

test("shows the defaults in the example file", () => {
  const cwd = directory();
  const defaults = loadConfig({ cwd, env: {} });
  const example = loadConfig({
    cwd,
    file: path.resolve(import.meta.dirname, "../../inkwell.example.yaml"),
    env: {},
  });
  const { file: _, dataDir: __, modelsDir: ___, database: ____, ...values } = withoutPlaces(example);
  const {
    file: _____,
    dataDir: ______,
    modelsDir: _______,
    database: ________,
    ...expected
  } = withoutPlaces(defaults);
  assert.deepEqual(values, expected);
});

test("names every variable of a setting in the example file", () => {
  const text = readFileSync(path.resolve(import.meta.dirname, "../../inkwell.example.yaml"), "utf8");
  const named = new Set(text.match(/(?<=# )INKWELL_\w+/g));
  assert.deepEqual([...named].toSorted(), ["INKWELL_CONFIG", ...settingVariables].toSorted());
});

test("reads the caps in the example file without their comment signs", () => {
  const text = readFileSync(path.resolve(import.meta.dirname, "../../inkwell.example.yaml"), "utf8");
  const { plans } = load(
    text.replace("    # caps:", "    caps:").replaceAll(/^ {4}# {3}(?=- \{ )/gm, "      "),
  );
  assert.deepEqual(
    plans.get("starter")?.caps.map(({ name, credits, models }) => [name, credits, ...models]),
    [
      ["PT5H", 30_000, "*"],
      ["P1W", 300_000, "*"],
      ["dear", 5000, "big-*"],
    ],
  );
});

test("uses the defaults for an empty file, and for a section whose keys are all commented out", () => {
  assert.equal(load("").listen.port, 8080);
  assert.equal(load("listen:\n  # port: 1\nlimits:\n").limits.queueMax, 256);
});

describe("the environment", () => {
  test("sets the values that have a variable, and comes before the file", () => {
    const token = "a-token-of-the-operator";
    const cwd = directory(
      "listen: { port: 7 }\noperator: { token: another-token-of-the-file }\nportal: { port: 8 }\ndata: ./mine\n",
    );
    const config = loadConfig({
      cwd,
      env: {
        INKWELL_HOST: "0.0.0.0",
        INKWELL_PORT: "1",
        INKWELL_OPERATOR_HOST: "::",
        INKWELL_OPERATOR_PORT: "0",
        INKWELL_OPERATOR_TOKEN: token,
        INKWELL_PORTAL_HOST: "localhost",
        INKWELL_PORTAL_PORT: "2",
        INKWELL_DATA: "elsewhere",
        INKWELL_MODELS: "/srv/models",
        INKWELL_DATABASE: "sqlite:ledger.db",
      },
    });
    assert.deepEqual(config.listen, { host: "0.0.0.0", port: 1, url: null });
    assert.deepEqual(config.operator, {
      supportCredits: 0,
      host: "::",
      port: 0,
      token,
      url: null,
      hosts: [],
    });
    assert.deepEqual(config.portal, { host: "localhost", port: 2, url: null, keys: true });
    assert.equal(config.dataDir, path.join(cwd, "elsewhere"));
    assert.equal(config.modelsDir, "/srv/models");
    assert.deepEqual(config.database, { kind: "sqlite", path: path.join(cwd, "ledger.db") });
  });

  test("moves the ledger and the models with the data folder", () => {
    const config = load(undefined, { INKWELL_DATA: "/srv/inkwell" });
    assert.equal(config.modelsDir, "/srv/inkwell/models");
    assert.deepEqual(config.database, { kind: "sqlite", path: "/srv/inkwell/inkwell.db" });
  });

  test("treats an empty variable as not set", () => {
    const config = load(undefined, { INKWELL_PORT: "", INKWELL_LIMITS__QUEUE: "", INKWELL_CONFIG: "" });
    assert.equal(config.listen.port, 8080);
  });

  test("may contain unknown variables without a path", () => {
    const others = {
      INKWELL_DB_PASSWORD: "secret",
      OTHER__THING: "1",
    };
    assert.deepEqual(problemsOf(undefined, others), []);
  });

  test("may contain the variables of commands", () => {
    const ofCommands = {
      INKWELL_API_KEY: "ink_x",
      INKWELL_SERVER: "https://ops.example",
      INKWELL_OPERATOR_KEY: "op_x",
    };
    assert.deepEqual(problemsOf(undefined, ofCommands), []);
    assert.equal(load(undefined, ofCommands).client.apiKey, "ink_x");
  });

  test("may contain a variable that the file names, even if it resembles a setting", () => {
    for (const name of ["INKWELL_DATAS", "INKWELL_LIMITS__QUEUE", "INKWELL_TIMEZONE"])
      assert.deepEqual(problemsOf(`data: \${${name}}`, { [name]: "d" }), []);
  });

  test("provides the settings for downloads, and no other variables", () => {
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

describe("the environment of the engine's process", () => {
  const needed = { HOME: "/home/ink", TMPDIR: "/scratch", LANG: "C.UTF-8", CUDA_VISIBLE_DEVICES: "1" };
  const loaders = {
    LD_LIBRARY_PATH: "/opt/other/lib",
    LD_PRELOAD: "/opt/other.so",
    DYLD_INSERT_LIBRARIES: "/opt/other.dylib",
    NODE_OPTIONS: "--import=/opt/other.js",
    GGML_BACKEND_PATH: "/opt/other",
    CUDA_INJECTION64_PATH: "/opt/other.so",
    VK_LAYER_PATH: "/opt/other",
  };
  const secrets = {
    INKWELL_OPERATOR_TOKEN: "x".repeat(20),
    INKWELL_DATABASE: "postgres://ink:secret@db/ink",
    HF_TOKEN: "hf",
    BIG_KEY: "sk-secret",
    OPERATOR_TOKEN: "y".repeat(20),
    HTTPS_PROXY: "http://ink:secret@proxy:3128",
  };

  const naming = (names: string) =>
    `models: { small: { engine: llama, source: default, ${price}, environment: ${names} } }`;

  test("contains what llama.cpp and GPU libraries need, without secrets and variables that load code", () => {
    assert.deepEqual(llama(load(undefined, { ...needed, ...loaders, ...secrets })).environment, needed);
  });

  test("contains the variables that the model's environment names", () => {
    const named = naming("[LD_LIBRARY_PATH, GGML_VK_PREFER_HOST_MEMORY]");
    const { LD_LIBRARY_PATH } = loaders;
    assert.deepEqual(llama(load(named, { ...needed, ...loaders, ...secrets })).environment, {
      ...needed,
      LD_LIBRARY_PATH,
    });
  });

  test("contains the system folders and PATH on Windows, in any case", () => {
    const folders = { SystemRoot: "C:\\Windows", Path: "C:\\CUDA\\bin" };
    assert.deepEqual(engineEnvironment({ ...folders, ...secrets }, ["cudart"], "win32"), folders);
    assert.deepEqual(engineEnvironment({ ...folders, ...secrets }, [], "linux"), {});
  });

  test("never contains variables of Inkwell or Node", () => {
    for (const name of ["INKWELL_OPERATOR_TOKEN", "inkwell_database", "NODE_OPTIONS", "A=B", ""]) {
      const [problem, ...others] = problemsOf(naming(`["${name}"]`));
      assert.match(problem ?? "", /environment\[0\]: found .*, expected the name of a variable/);
      assert.deepEqual(others, []);
    }
  });
});

describe("the file", () => {
  test("is that of --config, else of INKWELL_CONFIG, else inkwell.yaml", () => {
    const cwd = directory("listen: { port: 1 }");
    writeFileSync(path.join(cwd, "two.yaml"), "listen: { port: 2 }");
    writeFileSync(path.join(cwd, "three.yaml"), "listen: { port: 3 }");
    const env = { INKWELL_CONFIG: "two.yaml" };
    assert.equal(loadConfig({ cwd, env: {} }).listen.port, 1);
    assert.equal(loadConfig({ cwd, env }).listen.port, 2);
    assert.equal(loadConfig({ cwd, env, file: "three.yaml" }).listen.port, 3);
  });

  test("must exist if it is named", () => {
    const cwd = directory();
    assert.throws(
      () => loadConfig({ cwd, env: { INKWELL_CONFIG: "no.yaml" } }),
      /INKWELL_CONFIG is .*no\.yaml/,
    );
    assert.throws(
      () => loadConfig({ cwd, env: {}, file: "no.yaml" }),
      /^OperatorError: The configuration file \S+no\.yaml does not exist\.$/,
    );
  });

  test("must have a setting if it is named: the defaults replace no models of a running service", () => {
    for (const text of ["\n", "# models:\n#   big: {}\n", "---\n"]) {
      const cwd = directory(text);
      assert.equal(loadConfig({ cwd, env: {} }).models[0]?.id, "smollm2-135m-instruct");
      assert.throws(
        () => loadConfig({ cwd, env: {}, file: "inkwell.yaml" }),
        /inkwell\.yaml has no settings/,
      );
    }
    assert.equal(loadConfig({ cwd: directory("workers: 1"), env: {}, file: "inkwell.yaml" }).workers, 1);
  });

  test("is not ignored if it has the name inkwell.yml", () => {
    const cwd = directory();
    writeFileSync(path.join(cwd, "inkwell.yml"), "");
    assert.throws(() => loadConfig({ cwd, env: {} }), /must have the name inkwell\.yaml/);
  });

  test("resolves its paths from its folder, and those of variables from the working directory", () => {
    const cwd = directory();
    mkdirSync(path.join(cwd, "etc"));
    writeFileSync(path.join(cwd, "etc/my.yaml"), `data: ../var\n${oneModel.replace("default", "m/a.gguf")}`);
    const config = loadConfig({ cwd, file: "etc/my.yaml", env: { INKWELL_MODELS: "cache" } });
    assert.equal(config.dataDir, path.join(cwd, "var"));
    assert.equal(config.modelsDir, path.join(cwd, "cache"));
    assert.deepEqual(llama(config).source, path.join(cwd, "etc/m/a.gguf"));
  });

  test("replaces the default plans and models", () => {
    const config = load(oneModel);
    assert.deepEqual(
      config.models.map((model) => model.id),
      ["small"],
    );
    assert.deepEqual([...config.plans.keys()], ["starter"]);
  });

  test("names models as written, also with names that YAML reads as numbers", () => {
    const model = '{ engine: upstream, url: "http://a", model: x, price: { prompt: 1, completion: 1 } }';
    const names = ["2.0", "2", "0x10", "1e3", "True"];
    const { models } = load(`models:\n${names.map((name) => `  ${name}: ${model}\n`).join("")}`);
    assert.deepEqual(
      models.map(({ id }) => id),
      names,
    );
  });

  test("may contain anchors", () => {
    const config = load(`models:
  a: { engine: llama, source: default, price: &p { prompt: 3, completion: 4 } }
  b: { engine: llama, source: default, price: *p }
  c: { engine: llama, source: default, price: &p { prompt: 5, completion: 6 } }
  d: { engine: llama, source: default, price: *p }`);
    assert.deepEqual(config.models[1]?.price, { prompt: 3, completion: 4 });
    // The nearest anchor above counts.
    assert.deepEqual(config.models[3]?.price, { prompt: 5, completion: 6 });
    const tooMany = /^OperatorError: inkwell\.yaml is not valid: too many values, or too many maps or lists/;
    assert.throws(() => load("plans: &a { p: *a }"), tooMany);
    const ten = (of: string) => `[${Array(10).fill(of)}]`;
    const doubled = ["b", "c", "d", "e", "f"].map(
      (name, index) => `${name}: &${name} ${ten(`*${"abcde"[index]}`)}`,
    );
    assert.throws(() => load(`a: &a ${ten("x")}\n${doubled.join("\n")}`), tooMany);
  });

  test("opens a portal by the section alone, or by a variable alone", () => {
    const usual = { host: "127.0.0.1", port: 8082, url: null, keys: true };
    assert.deepEqual(load("portal:").portal, usual);
    assert.deepEqual(load("portal: {}").portal, usual);
    assert.deepEqual(load("", { INKWELL_PORTAL_HOST: "0.0.0.0" }).portal, { ...usual, host: "0.0.0.0" });
    assert.deepEqual(load("", { INKWELL_PORTAL_PORT: "1" }).portal, { ...usual, port: 1 });
    assert.equal(load("", { INKWELL_PORTAL_PORT: "" }).portal, null);
    const omitted = "portal: ${PORTAL:-}\n";
    assert.deepEqual(load(omitted, { INKWELL_PORTAL_PORT: "1" }).portal, { ...usual, port: 1 });
  });

  test("sets the names of the portal, in ASCII", () => {
    const names = (yaml: string) => {
      const { portal } = load(yaml);
      assert.ok(portal !== null);
      return portalNames(portal);
    };
    assert.deepEqual(names("portal: { host: localhost, url: 'https://BÜRO.example:8443' }"), [
      "xn--bro-hoa.example",
    ]);
    assert.deepEqual(names("portal: { host: ai.internal, url: 'http://127.0.0.1' }"), ["ai.internal"]);
  });

  test("sets the names of the operator listener, in ASCII", () => {
    const { operator } = load("operator: { hosts: [BÜRO.example, ops.example.], url: 'http://[::1]:8081' }");
    assert.deepEqual(operator.hosts, ["xn--bro-hoa.example", "ops.example."]);
    assert.equal(operator.url, "http://[::1]:8081");
    const named = "operator: { host: localhost, hosts: [a.example], url: 'https://BÜRO.example:8443/x' }";
    assert.deepEqual(operatorNames(load(named).operator), ["a.example", "xn--bro-hoa.example"]);
    assert.deepEqual(operatorNames({ ...operator, host: "ops.internal" })[0], "ops.internal");
  });

  test("accepts every form of a model's source", () => {
    for (const source of [
      "default",
      "/m/a.gguf",
      "hf:owner/repo@main/deep/a.gguf",
      "https://a.example/a.gguf?x=1",
    ]) {
      assert.equal(llama(load(oneModel.replace("default", `"${source}"`))).source, source);
    }
  });

  test("sets the think tags of a model, or that it does not think, or neither", () => {
    const reasoning = (written: string) =>
      load(oneModel.replace("price:", `${written} price:`)).models[0]?.reasoning;
    assert.deepEqual(reasoning("reasoning: { tags: [a, b] },"), { tags: ["a", "b"] });
    assert.deepEqual(reasoning("reasoning: { tags: [] },"), { tags: null });
    assert.equal(reasoning(""), null);
  });

  test("sets one or several upstreams and their dialect", () => {
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
    max_output_tokens: 16384
    parallel: 200
    defaults: { temperature: 0, top_p: 1, top_k: 0, max_tokens: 4096 }
    system_prompt: Answer in French.
    connect_seconds: 2
    headers_seconds: 600
    idle_seconds: 30
    template_tokens: 40
    send_stop: true
    pass_errors: true
    reserved: 0
    ${price}
    reasoning: { tags: ["<think>", "</think>"], opened: true }`,
      { BIG_KEY: "k1" },
    );
    const [big, wide] = config.models;
    assert.deepEqual(big, {
      id: "big",
      where: "inkwell.yaml:2",
      engine: "upstream",
      urls: ["https://llm.example/v1"],
      key: "k1",
      model: "vendor/big",
      dialect: "compatible",
      contextWindow: 8192,
      outputTokensMax: null,
      parallel: 64,
      defaults: {},
      systemPrompt: null,
      price: { prompt: 1, completion: 2 },
      connectMs: 5000,
      headersMs: 120_000,
      idleMs: 60_000,
      templateTokens: 512,
      reserved: 8,
      sendStop: false,
      passErrors: false,
      reasoning: { field: "reasoning_content", tags: null, opened: false, hidden: false },
    });
    assert.deepEqual(wide, {
      ...big,
      id: "wide",
      where: "inkwell.yaml:9",
      urls: ["http://a:8000/v1", "http://b:8000/v1"],
      key: null,
      model: "wide",
      dialect: "vllm",
      contextWindow: 131_072,
      outputTokensMax: 16_384,
      parallel: 200,
      defaults: { temperature: 0, topP: 1, topK: 0, maxTokens: 4096 },
      systemPrompt: "Answer in French.",
      connectMs: 2000,
      headersMs: 600_000,
      idleMs: 30_000,
      templateTokens: 40,
      reserved: 0,
      sendStop: true,
      passErrors: true,
      reasoning: { field: null, tags: ["<think>", "</think>"], opened: true, hidden: false },
    });
  });

  test("reserves an eighth of an upstream's slots, at least one, unless configured", () => {
    const reserved = (settings: string) => {
      const [model] = load(
        `models: { big: { engine: upstream, url: "http://a/v1", model: m, ${settings}, price: { prompt: 1, completion: 2 } } }`,
      ).models;
      assert.ok(model?.engine === "upstream");
      return model.reserved;
    };
    assert.deepEqual(
      [1, 2, 4, 15, 16, 200].map((parallel) => reserved(`parallel: ${parallel}`)),
      [0, 1, 1, 1, 2, 25],
    );
    assert.equal(reserved("parallel: 4, reserved: 3"), 3);
    assert.equal(reserved("parallel: 4, reserved: 0"), 0);
    assert.throws(
      () => reserved("parallel: 4, reserved: 4"),
      /models\.big\.reserved: found 4, expected less than parallel, which is 4/,
    );
  });

  test("sends stop sequences depending on the dialect, unless configured", () => {
    const sendStop = (settings: string) => {
      const [model] = load(
        `models: { big: { engine: upstream, url: "http://a/v1", model: m, ${settings} price: { prompt: 1, completion: 2 } } }`,
      ).models;
      assert.ok(model?.engine === "upstream");
      return model.sendStop;
    };
    assert.equal(sendStop(""), false);
    assert.equal(sendStop("dialect: llama-server,"), false);
    assert.equal(sendStop("dialect: openai,"), true);
    assert.equal(sendStop("dialect: openai, send_stop: false,"), false);
    assert.equal(sendStop("dialect: llama-server, send_stop: true,"), true);
  });

  test("sets defaults for requests", () => {
    const config = load(
      oneModel.replace("price:", "defaults: { temperature: 0.7, max_tokens: 300 }, price:"),
    );
    assert.deepEqual(config.models[0]?.defaults, { temperature: 0.7, maxTokens: 300 });
  });

  test("accepts a system prompt of several lines, and from a variable", () => {
    const lines = load(
      "models:\n  m:\n    engine: llama\n    source: default\n    system_prompt: |\n      One.\n      Two.\n" +
        `    ${price}`,
    );
    assert.equal(lines.models[0]?.systemPrompt, "One.\nTwo.\n");
    const longest = "x".repeat(16_384);
    const config = load(oneModel.replace("price:", 'system_prompt: "${PROMPT}", price:'), {
      PROMPT: longest,
    });
    assert.equal(config.models[0]?.systemPrompt, longest);
  });

  test("sets the GPU of a model", () => {
    const gpu = (value: string) => llama(load(oneModel.replace("price:", `gpu: ${value}, price:`))).gpu;
    assert.equal(gpu("vulkan"), "vulkan");
    assert.equal(gpu("off"), "off");
  });

  test("sets the time limit of a load for each model", () => {
    const limited = (value: string) => oneModel.replace("price:", `load_seconds: ${value}, price:`);
    assert.equal(llama(load(limited("900"))).loadMs, 900_000);
    assert.match(
      problemsOf(limited("0"))[0] ?? "",
      /load_seconds: found 0, expected a whole number from 1 to 86400/,
    );
  });

  test("replaces ${NAME} from the environment, also in numbers and lists, and $${ by ${", () => {
    const config = load(
      `listen:\n  port: \${MY_PORT}\ncors: { origins: ["https://\${HOST}"] }\ndata: /a/$\${b}\n`,
      { MY_PORT: "77", HOST: "a.example" },
    );
    assert.equal(config.listen.port, 77);
    assert.deepEqual(config.cors.origins, ["https://a.example"]);
    assert.equal(config.dataDir, "/a/${b}");
  });

  test("replaces ${NAME:-default} by the default if the variable is not set or empty", () => {
    const yaml = `listen:
  port: \${MY_PORT:-8000}
  url: \${MY_URL:-http://a.example:8000/x?y}
cors: { origins: ["https://\${HOST:-b.example}"] }
data: /a/\${EMPTY:-}/\${A:-$$}
`;
    for (const env of [{}, { MY_PORT: "", MY_URL: "", HOST: "", EMPTY: "", A: "" }] as Env[]) {
      assert.match(
        problemsOf(yaml, env).join(),
        /listen\.url: found "\$\{MY_URL:-http.*without a user, query/,
      );
      const { listen, cors, dataDir } = load(yaml.replace("?y", ""), env);
      assert.deepEqual(listen, { host: "127.0.0.1", port: 8000, url: "http://a.example:8000/x" });
      assert.deepEqual(cors.origins, ["https://b.example"]);
      assert.equal(dataDir, "/a/$$");
    }
    const set = load(yaml, { MY_PORT: "9", MY_URL: "http://c", HOST: "d", EMPTY: "e", A: "f" });
    assert.deepEqual([set.listen.port, set.listen.url], [9, "http://c"]);
    assert.deepEqual([set.cors.origins, set.dataDir], [["https://d"], "/a/e/f"]);
  });

  test("leaves out a value or an item that is ${NAME:-} without a value", () => {
    const yaml = `listen: { url: "\${MY_URL:-}" }
operator: { hosts: ["\${HOST:-}", ops.example], token: "\${TOKEN:-}" }
portal: "\${PORTAL:-}"
`;
    for (const env of [{}, { MY_URL: "", HOST: "", TOKEN: "", PORTAL: "" }] as Env[]) {
      const { listen, operator, portal } = load(yaml, env);
      assert.deepEqual([listen.url, portal, operator.token], [null, null, null]);
      assert.deepEqual(operator.hosts, ["ops.example"]);
    }
    const env = { MY_URL: "http://a", HOST: "b", TOKEN: "a-token-of-the-operator" };
    const { listen, operator } = load(yaml, env);
    assert.deepEqual(
      [listen.url, operator.hosts, operator.token],
      ["http://a", ["b", "ops.example"], env.TOKEN],
    );
    assert.match(problemsOf("listen: { url: '${MY_URL}' }", { MY_URL: "" }).join(), /listen\.url: found/);
    const required = oneModel.replace("source: default", 'source: "${MODEL:-}"');
    assert.match(problemsOf(required).join(), /models\.small\.source is missing/);
  });
});

test("accepts positive whole periods in either calendar or fixed units", () => {
  const plan = (every: string) =>
    `plans: { p: { base: { credits: 1, every: "${every}" }, overage: { credits: 0, every: P1M } } }`;
  for (const good of ["PT5H", "PT1M", "P1D", "P1W", "P1M", "P1Y", "P1Y6M", "P1DT12H", "PT90M", "P10Y"]) {
    assert.deepEqual(problemsOf(plan(good)), [], good);
  }
  const bad = "P PT P0D -P1D +P1D P1.5D PT1.5H PT30S P1M1D P1MT1H p1d 1d P1DT P11Y P99999999D daily";
  for (const each of ["", ...bad.split(" ")])
    assert.match(problemsOf(plan(each)).join(), /base\.every: found .*ISO 8601/, each);
});

describe("the operator token", () => {
  const at = (dataDir: string, env: Env = {}) =>
    readOperatorToken(load(undefined, { INKWELL_DATA: dataDir, ...env }));

  test("is created once, readable only by its owner, and does not change", async () => {
    const dataDir = path.join(directory(), "deep/data");
    const [first, second] = await Promise.all([at(dataDir), at(dataDir)]);
    assert.match(first.token, /^[\w-]{43}$/);
    assert.equal(second.token, first.token);
    assert.ok(first.isNew);
    assert.equal(first.file, path.join(dataDir, "operator-token"));
    assert.equal(statSync(first.file).mode & 0o777, 0o600);
    assert.deepEqual(await at(dataDir), { ...first, isNew: false });
  });

  test("is the configured one, and no file is created", async () => {
    const dataDir = path.join(directory(), "data");
    const token = "configured-by-the-operator";
    assert.deepEqual(await at(dataDir, { INKWELL_OPERATOR_TOKEN: token }), {
      token,
      file: null,
      isNew: false,
    });
    assert.throws(() => statSync(dataDir));
  });

  test("is not read from a file without a valid token", async () => {
    const dataDir = directory();
    writeFileSync(path.join(dataDir, "operator-token"), "short\n");
    await assert.rejects(at(dataDir), /operator-token must be at least 16 characters.*Delete the file/);
  });

  test("names the folder that is not writable", async () => {
    const file = path.join(directory(""), "inkwell.yaml");
    await assert.rejects(at(path.join(file, "data")), (error: unknown) => {
      assert.ok(error instanceof OperatorError);
      assert.match(error.message, /operator-token cannot be read or created/);
      return true;
    });
  });
});

test("the price of 1,000 credits is read exactly", () => {
  const { currency } = load(`${oneModel}\ncurrency: { code: EUR, credits_1000: 0.29 }\n`);
  assert.deepEqual(currency, { code: "EUR", priceMicro: 290_000 });
});

test("a user of a container without HOME and without an entry in passwd has the home /", () => {
  const { homedir } = os;
  os.homedir = () => {
    throw new Error("uv_os_homedir returned ENOENT");
  };
  syncBuiltinESMExports();
  try {
    assert.equal(loadConfig({ cwd: import.meta.dirname, env: {} }).sources.home, "/");
  } finally {
    os.homedir = homedir;
    syncBuiltinESMExports();
  }
});
