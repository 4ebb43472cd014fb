/**
 * `inkwell config` and `inkwell models`: the resulting settings, and model files that cannot be
 * used.
 */
import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { loadConfig } from "../../src/config/load.ts";
import { runCli } from "../fixtures/cli-host.ts";
import { cliLedger, refused } from "../fixtures/cli-ledger.ts";
import { withoutPlaces } from "../fixtures/configuration.ts";
import { fieldsOf } from "../fixtures/operator.ts";
import { miniature } from "../fixtures/program.ts";

const ledger = cliLedger();
const { cwd } = ledger;

describe("config check", () => {
  test("reports a valid configuration and its settings", async () => {
    const ran = await ledger.inkwell("config", "check");
    assert.equal(
      ran.stderr,
      "The configuration is valid: 2 plans, 1 model.\nThere is no ledger yet. It will begin with these plans.\n",
    );
    assert.match(ran.stdout, /^plan +big: 5,000 credits every P1D, overage 0 every P1M$/m);
  });

  test("warns of models that a plan can never pay for, and of caps that count no model", async () => {
    const plan = (credits: number, more = "") =>
      `{ base: { credits: ${credits}, every: P1D }, overage: { credits: 0, every: P1D }${more} }`;
    const model = (price: string, more = "") =>
      `{ engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: ${price}, completion: ${price} }${more} }`;
    writeFileSync(
      path.join(cwd, "poor.yaml"),
      `plans:
  bought: ${plan(0)}
  poor: ${plan(30)}
  rich: ${plan(529)}
  narrow: ${plan(30, ", models: [small-template], caps: [{ credits: 15, every: P1D, models: [gone] }]")}
models:
  big: ${model("1000000")}
  small-template: ${model("1000000", ", template_tokens: 13")}
  counted: ${model("1000000", ", dialect: vllm")}
  dear: { engine: llama, source: ${miniature}, price: { prompt: 9000000, completion: 22000000 } }
`,
    );
    const { code, stderr } = await ledger.inkwell("config", "check", "--config", "poor.yaml");
    assert.equal(code, 0, stderr);
    assert.match(stderr, /^The cap P1D of the plan narrow names models that .* does not have: gone\./m);
    const warnings = stderr.split("\n").filter((line) => line.startsWith("The smallest request to"));
    assert.equal(warnings.length, 2, stderr);
    assert.match(
      warnings[0] ?? "",
      /^The smallest request to big takes 529 credits\. .* that many: poor \(30\)\./,
    );
    assert.match(warnings[0] ?? "", /held for 528 tokens\. .*docs\/upstreams\.md/);
    assert.match(
      warnings[1] ?? "",
      /^The smallest request to dear takes 31 credits\. .*poor \(30\)\. [^.]*\.$/,
    );
  });

  test("prints a document that is the same configuration", async () => {
    writeFileSync(
      path.join(cwd, "full.yaml"),
      `listen: { host: 0.0.0.0, port: 81 }
operator: { port: 82, hosts: [node-a], url: "https://ops.example" }
data: elsewhere
plans:
  none: { base: { credits: 1, every: PT5H }, overage: { credits: 2, every: P1W } }
  some:
    base: { credits: 3, every: P1D }
    overage: { credits: 4, every: P1Y }
    limits: { requests_per_minute: 5, tokens_per_minute: 6, concurrent: 7 }
    caps:
      - { credits: 5, every: PT5H }
      - { name: dear, credits: 6, every: P1W, align: calendar, models: ["o*", two] }
    models: [one, two]
models:
  one: { engine: llama, source: ${miniature}, context_window: 512, parallel: 2, threads: 1, gpu: "off", price: { prompt: 8, completion: 9, cached_prompt: 7 }, reasoning: { tags: ["<a>", "</a>"] } }
  two: { engine: llama, source: default, price: { prompt: 1, completion: 1 }, reasoning: { tags: [] } }
  three: { engine: upstream, url: "http://a:1/v1", model: m, dialect: vllm, connect_seconds: 1, headers_seconds: 2, idle_seconds: 3, template_tokens: 9, pass_errors: true, price: { prompt: 1, completion: 1 }, reasoning: { field: thoughts } }
  four: { engine: upstream, urls: ["http://a:1/v1", "http://b:1/v1"], model: m, price: { prompt: 1, completion: 1 }, reasoning: { tags: ["<t>", "</t>"], opened: true } }
limits: { body_bytes: 2048, upload_bytes: 4096, upload_seconds: 8, refused_bytes_per_minute: 9, refused_milliseconds_per_minute: 10, connections: 11, connections_per_address: 2, trusted_proxies: ["10.0.0.0/8"], messages: 3, keys: 300, queue: 4, unready_seconds: 5, drain_seconds: 6, stream_idle_seconds: 7 }
cors: { origins: ["https://a.example"] }
log: { level: warn }
tracing: { endpoint: "http://127.0.0.1:4318", service_name: writer }
`,
    );
    const document = await ledger.documentOf("config", "check", "--config", "full.yaml");
    assert.ok(typeof document === "object" && document !== null && "operator" in document);
    const { operator, ...others } = { ...document, file: undefined };
    const { token, ...operatorSettings } = fieldsOf(operator);
    assert.equal(token, "in the data folder");
    assert.deepEqual(operatorSettings, {
      host: "127.0.0.1",
      port: 82,
      url: "https://ops.example",
      hosts: ["node-a"],
      support_credits: 0,
    });
    const written = { ...others, operator: operatorSettings };
    writeFileSync(path.join(cwd, "again.yaml"), JSON.stringify(written));
    const load = (file: string) => ({ ...withoutPlaces(loadConfig({ cwd, env: {}, file })), file: "" });
    assert.deepEqual(load("again.yaml"), load("full.yaml"));

    const { stdout } = await ledger.inkwell("config", "check", "--config", "full.yaml");
    for (const shown of [
      /^operator API +127\.0\.0\.1 port 82, token in \S+elsewhere\/operator-token$/m,
      /^operator hosts +IP addresses, localhost, node-a, ops\.example$/m,
      /^plan +some: 3 credits every P1D, overage 4 every P1Y, at most 5 every PT5H, at most 6 of o\* two every P1W \(calendar, dear\), 5 requests\/min, 6 tokens\/min, 7 at once, models one two, zone UTC$/m,
      /^model +four: upstream, http:\/\/a:1\/v1, http:\/\/b:1\/v1, 1 \/ 1 credits per million/m,
      /^limits +2,048 bytes and 3 messages a request, 4 waiting for a model$/m,
      /^uploads +4,096 bytes at once, 8 s for a body of at most 300 keys$/m,
      /^refused work +9 bytes and 10 ms of processor time a minute for each account$/m,
      /^connections +at most 11, 2 from one address, any number from 10\.0\.0\.0\/8$/m,
      /^stopping +not ready for 5 s, then 6 s for running answers$/m,
      /^unread streams +kept for 7 s$/m,
      /^web pages +https:\/\/a\.example$/m,
      /^log +warn$/m,
      /^traces +http:\/\/127\.0\.0\.1:4318 as writer$/m,
    ]) {
      assert.match(stdout, shown);
    }
  });

  test("has each limit of the complete example", async () => {
    const example = readFileSync(new URL("../../inkwell.example.yaml", import.meta.url), "utf8");
    const [section = ""] = example.split(/^limits:$/m)[1]?.split(/^\S/m) ?? [];
    const names = [...section.matchAll(/^ {2}(?:# )?([a-z_]+):/gm)].map(([, name]) => name);
    assert.ok(names.includes("connections") && names.includes("stream_idle_seconds"));
    const document = fieldsOf(await ledger.documentOf("config", "check", "--config", "full.yaml"));
    assert.deepEqual(names.toSorted(), Object.keys(fieldsOf(document.limits)).toSorted());
  });

  test("shows no secrets", async () => {
    const secrets = {
      INKWELL_OPERATOR_TOKEN: "the-token-of-the-operator",
      HF_TOKEN: "hf_secret",
      INKWELL_API_KEY: "ink_x",
      INKWELL_DATABASE: "postgres://u:the-password@db.example/inkwell",
      FAR_KEY: "sk-upstream",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://u:hunter2@127.0.0.1:4318",
    };
    writeFileSync(
      path.join(cwd, "far.yaml"),
      `models: { far: { engine: upstream, url: "https://a.example/v1", model: m, key: "\${FAR_KEY}", price: { prompt: 1, completion: 1 } } }`,
    );
    for (const json of [[], ["--json"]]) {
      const ran = await runCli(["config", "check", "--config", "far.yaml", ...json], { cwd, env: secrets });
      assert.equal(ran.code, 0);
      for (const secret of [...Object.values(secrets), "hunter2"])
        assert.ok(!(ran.stdout + ran.stderr).includes(secret));
    }
  });

  test("reports all problems and exits 1, as any other command does", async () => {
    const env = { INKWELL_PORT: "x", INKWELL_LIMITS__QUEUE: "y" };
    for (const argv of [["config", "check"], ["account", "list"], ["models"]]) {
      refused(
        await runCli(argv, { cwd, env }),
        /^The configuration is wrong in 2 places:\n {2}INKWELL_PORT.*\n {2}INKWELL_LIMITS__QUEUE/,
      );
    }
  });

  test("reports unusable model files and exits 1", async () => {
    const llama = (source: string) =>
      `{ engine: llama, source: ${source}, price: { prompt: 1, completion: 1 } }`;
    writeFileSync(path.join(cwd, "short.gguf"), "no");
    writeFileSync(
      path.join(cwd, "missing.yaml"),
      `models:\n  none: ${llama("none.gguf")}\n  short: ${llama("short.gguf")}\n  later: ${llama("default")}\n`,
    );
    refused(
      await ledger.inkwell("config", "check", "--config", "missing.yaml"),
      /^The configuration is valid, but the service cannot start with these model files:\n {2}models\.none\.source: model file \S+none\.gguf cannot be opened: there is no such file\n {2}models\.short\.source: model file \S+short\.gguf cannot be used: .*\n$/,
    );
  });

  test("reads the file that --config names", async () => {
    writeFileSync(path.join(cwd, "other.yaml"), "listen: { port: 99 }");
    const ran = await ledger.inkwell("config", "check", "--config", "other.yaml");
    assert.match(ran.stdout, /127\.0\.0\.1 port 99/);
  });
});

describe("models", () => {
  test("lists the configured models with their prices", async () => {
    const pricing = { prompt: 10, completion: 30, cached_prompt: 10 };
    assert.deepEqual(await ledger.documentOf("models"), [
      {
        id: "small",
        engine: "llama",
        source: "default",
        context_window: 8192,
        max_output_tokens: 8192,
        parallel: 4,
        defaults: {},
        pricing,
        file: { path: null, bytes: null, problem: null, unchecked: null },
        state: null,
        warnings: null,
      },
    ]);
    assert.match(
      (await ledger.inkwell("models")).stdout,
      /^small +default +8,192 +4 +10 +10 +30 +not downloaded$/m,
    );
  });

  test("reports existing files, their sizes, and unusable files", async () => {
    const { size } = statSync(miniature);
    writeFileSync(path.join(cwd, "bad.gguf"), "no");
    const price = "price: { prompt: 1, completion: 1 }";
    writeFileSync(
      path.join(cwd, "files.yaml"),
      `models:
  there: { engine: llama, source: ${miniature}, ${price} }
  bad: { engine: llama, source: bad.gguf, ${price} }
  remote: { engine: upstream, url: "https://a.example/v1", model: x, ${price} }
`,
    );
    const ran = await ledger.inkwell("models", "--config", "files.yaml");
    assert.equal(ran.code, 0);
    assert.deepEqual(
      ran.stdout.split("\n").map((line) => line.split(/ {2,}/).at(-1)),
      ["FILE", `${(size / 1e6).toFixed(1)} MB`, "unusable", "-", ""],
    );
    assert.match(ran.stderr, /^model file \S+bad\.gguf cannot be used: .*\.\nPrices are in credits/);
    const documents = await ledger.documentOf("models", "--config", "files.yaml");
    assert.ok(Array.isArray(documents));
    assert.deepEqual(documents[0].file, { path: miniature, bytes: size, problem: null, unchecked: null });
    assert.match(documents[1].file.problem, /bad\.gguf cannot be used/);
    assert.equal(documents[2].file, null);
  });

  test("pull downloads the named model and prints its path", async () => {
    const pulled: string[] = [];
    const pullModel = async (_: unknown, id: string) => {
      pulled.push(id);
      return "/models/small.gguf";
    };
    const ran = await runCli(["models", "pull", "small"], { cwd, services: { pullModel } });
    assert.deepEqual([ran.code, ran.stdout, pulled], [0, "/models/small.gguf\n", ["small"]]);
    refused(await runCli(["models", "pull", "smal"], { cwd, services: { pullModel } }), /Did you mean small/);
    const remote = await runCli(["models", "pull", "small"], {
      cwd,
      services: { pullModel: async () => null },
    });
    assert.deepEqual([remote.code, /no file to fetch/.test(remote.stdout)], [0, true]);
  });
});
