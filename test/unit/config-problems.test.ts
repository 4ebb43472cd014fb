/** Invalid configurations: one message has all faults, each with its place and the valid form. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of
// this form.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Env, oneModel, price, problemsOf } from "../fixtures/configuration.ts";

describe("a wrong configuration", () => {
  test("is reported completely in one message, by line, then by variable", () => {
    const yaml = `listen: { port: 99999 }
limts: { queue: 3 }
limits:
  queue: many
`;
    assert.deepEqual(problemsOf(yaml, { INKWELL_LIMITS__QUEUE: "3", INKWELL_OPERATOR_PORT: "x" }), [
      "inkwell.yaml:1: listen.port: found 99999, expected a port from 0 to 65535 (0: any free one)",
      "inkwell.yaml:2: limts is not known; did you mean limits?",
      'inkwell.yaml:4: limits.queue: found "many", expected a whole number from 1 to 100000',
      'INKWELL_OPERATOR_PORT: operator.port: found "x", expected a port from 0 to 65535 (0: any free one)',
      "INKWELL_LIMITS__QUEUE: this variable is not read any more; set limits.queue in inkwell.yaml, where ${NAME} reads a variable",
    ]);
  });

  const plan = (inside: string) => `plans:\n  p:\n${inside}\n`;
  const goodOverage = "    overage: { credits: 0, every: P1M }";
  const cases: [sentence: string, yaml: string | undefined, env: Env, problem: RegExp][] = [
    [
      "names a duplicate key",
      "listen: { port: 1 }\nlisten: { port: 2 }",
      {},
      /^inkwell\.yaml:2: this is not valid YAML: the key listen occurs twice$/,
    ],
    [
      "reports only the duplicate key, because its content is unknown",
      "plans:\n  p: { base: 1 }\nplans:\nlisten: 5",
      {},
      /^inkwell\.yaml:3: this is not valid YAML: the key plans occurs twice$/,
    ],
    [
      "refuses an alias without an anchor",
      "plans: *nowhere",
      {},
      /^inkwell\.yaml:1: this is not valid YAML: there is no &nowhere above$/,
    ],
    [
      "reports a list of models once, with the valid form",
      `models:\n- ${oneModel}\nplans: { p: { base: { credits: 1, every: P1D }, overage: { credits: 1, every: P1D }, models: [small] } }`,
      {},
      /^inkwell\.yaml:1: models: found a list, expected a map of names, each with its own keys$/,
    ],
    [
      "reports plans that are not a map, but not that they are empty",
      "plans: starter",
      {},
      /^inkwell\.yaml:1: plans: found "starter", expected a map of names, each with its own keys$/,
    ],
    [
      "refuses tabs as indentation",
      "listen:\n\tport: 1",
      {},
      /^inkwell\.yaml:2: this is not valid YAML: .*[Tt]ab/,
    ],
    ["refuses a list at the top level", "- a", {}, /^inkwell\.yaml:1: found a list, expected keys/],
    [
      "names the keys of a section that is not a map",
      "listen: 8080",
      {},
      /^inkwell\.yaml:1: listen: found 8080, expected a map with the keys host, port, url$/,
    ],
    [
      "lists the keys for an unknown key without a similar one",
      "listen: { colour: 1 }",
      {},
      /listen\.colour is not known; the keys here are host, port/,
    ],
    ["refuses a number in quotes", 'listen: { port: "80" }', {}, /found "80", expected a port/],
    ["refuses a fraction for a whole number", "limits: { queue: 1.5 }", {}, /limits\.queue: found 1\.5/],
    ["refuses an empty value", "data:", {}, /data: found nothing, expected a path/],
    ["refuses a host with a port", "listen: { host: 'a.example:80' }", {}, /listen\.host: .*without a port/],
    ["refuses an IP address out of range", "listen: { host: 1.2.3.456 }", {}, /listen\.host/],
    [
      "refuses one port for both listeners",
      "operator: { port: 8080 }",
      {},
      /operator\.port: 8080 is also the port of listen/,
    ],
    [
      "requires a token for an operator listener that other machines can reach",
      "operator: { host: 0.0.0.0 }",
      {},
      /inkwell\.yaml:1: operator\.host: 0\.0\.0\.0 can be reached.*INKWELL_OPERATOR_TOKEN/,
    ],
    ...[
      "http://ops.example",
      "ops.example:8081",
      "ops.example/admin",
      "*.example",
      "10.0.0.1",
      "127.1",
      "::1",
      "[::1]",
      "me@ops.example",
      "ops..example",
      "ops.example?x",
      "ops\u00adexample:1",
      "two words",
      `${"a".repeat(64)}.example`,
    ].map((host): (typeof cases)[number] => [
      `refuses ${host} as an operator host`,
      `operator: { hosts: [ops.example, ${JSON.stringify(host)}] }`,
      {},
      /^inkwell\.yaml:1: operator\.hosts\[1\]: found ".*", expected a host name such as ops\.example, without scheme, port, path or wildcard \(IP addresses and localhost are always accepted\)$/,
    ]),
    [
      "requires a list of operator hosts",
      "operator: { hosts: ops.example }",
      {},
      /^inkwell\.yaml:1: operator\.hosts: found "ops\.example", expected a list of host names: \[ops\.example, node-a\]$/,
    ],
    [
      "requires a list, also from the environment",
      "operator: { hosts: '${HOSTS}' }",
      { HOSTS: "ops.example,node-a" },
      /^inkwell\.yaml:1: operator\.hosts: found "\$\{HOSTS\}", expected a list of host names: \[ops\.example, node-a\]$/,
    ],
    ...[
      "ops.example",
      "ftp://ops.example",
      "https://me@ops.example",
      "https://ops.example/?a=1",
      "https://",
    ].map((url): (typeof cases)[number] => [
      `refuses ${url} as the operator URL`,
      `operator: { url: "${url}" }`,
      {},
      /^inkwell\.yaml:1: operator\.url: found ".*", expected a URL that begins with http:\/\/ or https:\/\//,
    ]),
    [
      "refuses a short operator token and does not show it",
      undefined,
      { INKWELL_OPERATOR_TOKEN: "hunter2" },
      /^INKWELL_OPERATOR_TOKEN: operator\.token: found a text of 7 characters \(not shown\), expected at least 16/,
    ],
    [
      "names a missing variable",
      "data: ${NOWHERE}/data",
      {},
      /inkwell\.yaml:1: data: the environment variable NOWHERE is not set/,
    ],
    [
      "explains a malformed placeholder",
      "data: ${NO WHERE}",
      {},
      /expected \$\{NAME\} or \$\{NAME:-default\}, without \$\{ in the default; write \$\$\{ for a plain/,
    ],
    [
      "refuses a default without its colon",
      "data: ${NOWHERE-here}",
      {},
      /^inkwell\.yaml:1: data: found "\$\{NOWHERE-here\}", expected \$\{NAME\} or/,
    ],
    [
      "refuses a placeholder inside a default",
      "data: ${NOWHERE:-${HOME}}",
      { HOME: "h" },
      /^inkwell\.yaml:1: data: found "\$\{NOWHERE:-\$\{HOME\}", .* without \$\{ in the default/,
    ],
    [
      "does not show the text around a variable that is not set",
      "database: postgres://u:s3cret@${NOWHERE}/d",
      {},
      /^inkwell\.yaml:1: database: the environment variable NOWHERE is not set, and \$\{NOWHERE\} has no default$/,
    ],
    [
      "does not show the default of a secret",
      "operator: { token: '${NOWHERE:-hunter2}' }",
      {},
      /^inkwell\.yaml:1: operator\.token: found a text of 7 characters \(not shown\), expected at least 16/,
    ],
    [
      "explains an unquoted placeholder inside braces",
      "listen: { host: ${HOST} }",
      { HOST: "a" },
      /in quotes: "\$\{NAME\}"/,
    ],
    [
      "does not show the value of a placeholder",
      "log: { level: '${LEVEL}' }",
      { LEVEL: "s3cret" },
      /log\.level: found "\$\{LEVEL\}", expected info/,
    ],
    [
      "refuses an invalid PostgreSQL URL and does not show its password",
      undefined,
      { INKWELL_DATABASE: "postgres://u:s3cr/et@h:x/d" },
      /^INKWELL_DATABASE: database: found a text of \d+ characters \(not shown\), expected sqlite:PATH, such as sqlite:\.\/data\/inkwell\.db, or postgres:\/\/USER/,
    ],
    [
      "refuses another database and does not show its URL",
      undefined,
      { INKWELL_DATABASE: "mysql://u:p@h/d" },
      /database: found a text of \d+ characters \(not shown\), expected sqlite:PATH/,
    ],
    ...Object.entries({
      INKWELL_LIMITS__QUEUE: "limits.queue",
      INKWELL_LISTEN__PORT: "listen.port",
      INKWELL_MODELS__SMALL__KEY: "models.NAME.key",
      INKWELL_PLANS__FREE__BASE__CREDITS: "plans.NAME.base.credits",
      INKWELL_EVENTS__MAIL__PASSWORD: "events.mail.password",
      INKWELL_SIGN_IN__ISSUER: "sign_in.issuer",
      INKWELL_URL: "listen.url",
      INKWELL_OPERATOR_HOSTS: "operator.hosts",
      INKWELL_OPERATOR_URL: "operator.url",
      INKWELL_PORTAL_URL: "portal.url",
      INKWELL_TIMEZONE: "timezone",
    }).map(([name, place]): (typeof cases)[number] => [
      `refuses the variable ${name}, and does not show its value`,
      undefined,
      { [name]: "hunter2" },
      new RegExp(
        `^${name}: this variable is not read any more; set ${place.replaceAll(".", "\\.")} in inkwell\\.yaml, where \\$\\{NAME\\} reads a variable$`,
      ),
    ]),
    [
      "refuses a configuration with no plan at all",
      "plans: {}",
      {},
      /plans is empty; there must be at least one plan/,
    ],
    [
      "refuses a configuration without models",
      "models: {}",
      {},
      /models is empty; there must be at least one model/,
    ],
    [
      "refuses a plan without its base bucket",
      plan(goodOverage),
      {},
      /inkwell\.yaml:2: plans\.p\.base\.credits is missing/,
    ],
    [
      "requires a plain name for a plan",
      "plans: { Big Plan: {} }",
      {},
      /plans: found the name "Big Plan", expected 1 to 64 characters/,
    ],
    [
      "reports a number in place of a bucket, but not its missing keys",
      plan("    base: { credits: 1, every: P1D }\n    overage: 5"),
      {},
      /^inkwell\.yaml:4: plans\.p\.overage: found 5, expected a map with the keys credits, every, align$/,
    ],
    [
      "requires whole credits",
      plan(`    base: { credits: 1.5, every: P1D }\n${goodOverage}`),
      {},
      /inkwell\.yaml:3: plans\.p\.base\.credits: found 1\.5, expected whole credits/,
    ],
    [
      "limits the credits of a bucket",
      plan(`    base: { credits: 9000001, every: P1D }\n${goodOverage}`),
      {},
      /from 0 to 9000000/,
    ],
    [
      "refuses a plan with an unknown model",
      plan(`    base: { credits: 1, every: P1D }\n${goodOverage}\n    models: [smollm2-135m-instuct]`),
      {},
      /inkwell\.yaml:5: plans\.p\.models: there is no model "smollm2-135m-instuct"; did you mean smollm2-135m-instruct\?/,
    ],
    [
      "requires a list of a plan's models",
      plan(`    base: { credits: 1, every: P1D }\n${goodOverage}\n    models: all`),
      {},
      /plans\.p\.models: found "all", expected a list of model ids/,
    ],
    [
      "refuses a limit of 0",
      plan(`    base: { credits: 1, every: P1D }\n${goodOverage}\n    limits: { concurrent: 0 }`),
      {},
      /plans\.p\.limits\.concurrent: found 0/,
    ],
    [
      "applies the range of requests to a default temperature",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { temperature: 2.5 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.temperature: found 2\.5, expected a number from 0 to 2$/,
    ],
    [
      "requires a number for a default top_p of a variable",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { top_p: "\${TOP_P}" } } }`,
      { TOP_P: "high" },
      /^inkwell\.yaml:1: models\.m\.defaults\.top_p: found "\$\{TOP_P\}", expected a number from 0 to 1$/,
    ],
    [
      "requires a whole number for a default top_k",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { top_k: 1.5 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.top_k: found 1\.5, expected a whole number from 0 to 2147483647$/,
    ],
    [
      "requires a default max_tokens of at least 1",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { max_tokens: 0 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.max_tokens: found 0, expected a whole number from 1 to 16777216$/,
    ],
    [
      "refuses a default that requests do not have",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { temprature: 1 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.temprature is not known; did you mean temperature\?$/,
    ],
    [
      "refuses a model without a price, which would be free (BerriAI/litellm#35524, #37927)",
      "models:\n  m: { engine: llama, source: default }",
      {},
      /^inkwell\.yaml:2: models\.m\.price is missing: without it the model would be free for everybody/,
    ],
    [
      "refuses an incomplete price",
      "models: { m: { engine: llama, source: default, price: { prompt: 1 } } }",
      {},
      /models\.m\.price\.completion is missing; expected whole credits per million tokens/,
    ],
    [
      "refuses a price that is not whole",
      "models: { m: { engine: llama, source: default, price: { prompt: 0.5, completion: 1 } } }",
      {},
      /price\.prompt: found 0\.5, expected whole credits/,
    ],
    [
      "refuses a negative price",
      "models: { m: { engine: llama, source: default, price: { prompt: 1, completion: -1 } } }",
      {},
      /price\.completion: found -1/,
    ],
    [
      "refuses an unknown engine",
      `models: { m: { engine: lama, source: default, ${price} } }`,
      {},
      /models\.m\.engine: found "lama", expected llama or upstream/,
    ],
    ...[
      "P300000Y",
      "P999999Y999999M",
      "P11Y",
      "P121M",
      "P999999M",
      "P999999W",
      "P999999W999999DT999999H999999M",
      "PT999999H",
      "P1000000D",
    ].map((every): (typeof cases)[number] => [
      `refuses a period of more than ten years: ${every}`,
      plan(`    base: { credits: 1, every: P1D }\n    overage: { credits: 0, every: ${every} }`),
      {},
      new RegExp(
        `^inkwell\\.yaml:4: plans\\.p\\.overage\\.every: found "${every}", expected an ISO 8601 period of at`,
      ),
    ]),
    [
      "refuses a source that is not a model file",
      `models: { m: { engine: llama, source: a.bin, ${price} } }`,
      {},
      /models\.m\.source: model source a\.bin is not understood/,
    ],
    [
      "refuses a source with an invalid escape",
      `models:\n  m:\n    engine: llama\n    source: https://host.example/100%.gguf\n    ${price}`,
      {},
      /^inkwell\.yaml:4: models\.m\.source: model source https:\/\/host\.example\/100%\.gguf has a % .* write %25 for a %$/,
    ],
    [
      "refuses a hub reference without a file",
      `models: { m: { engine: llama, source: "hf:owner/repo", ${price} } }`,
      {},
      /models\.m\.source/,
    ],
    [
      "refuses a single think tag",
      `models: { m: { engine: llama, source: default, ${price}, reasoning: { tags: [a] } } }`,
      {},
      /reasoning\.tags: found 1 texts, expected two texts/,
    ],
    [
      "requires a URL for an upstream",
      `models:\n  m:\n    engine: upstream\n    url: a.example\n    model: x\n    ${price}`,
      {},
      /^inkwell\.yaml:4: models\.m\.url: found a text of \d+ characters \(not shown\), expected a URL/,
    ],
    [
      "refuses an upstream URL that includes the path of chat requests",
      `models: { m: { engine: upstream, url: "https://a.example/v1/chat/completions", model: x, ${price} } }`,
      {},
      /models\.m\.url: .* ends before \/chat\/completions/,
    ],
    [
      "refuses a password in an upstream URL and does not show it",
      `models: { m: { engine: upstream, url: "https://me:hidden@a.example/v1", model: x, ${price} } }`,
      {},
      /models\.m\.url: found a text of \d+ characters \(not shown\).*set the key with key/,
    ],
    [
      "refuses an upstream without a URL",
      `models: { m: { engine: upstream, model: x, ${price} } }`,
      {},
      /models\.m\.url is missing; expected a URL/,
    ],
    [
      "refuses url together with urls",
      `models: { m: { engine: upstream, url: "http://a", urls: ["http://b"], model: x, ${price} } }`,
      {},
      /models\.m: found both url and urls, expected one of them/,
    ],
    [
      "requires the upstream's name of the model",
      `models: { m: { engine: upstream, url: "http://a", ${price} } }`,
      {},
      /models\.m\.model is missing; expected the model's name at the upstream/,
    ],
    [
      "refuses an unknown dialect",
      `models: { m: { engine: upstream, url: "http://a", model: x, dialect: tgi, ${price} } }`,
      {},
      /models\.m\.dialect: found "tgi", expected compatible, openai, vllm, sglang, llama-server or ollama/,
    ],
    [
      "refuses a key of the embedded engine for an upstream",
      `models: { m: { engine: upstream, url: "http://a", model: x, threads: 2, ${price} } }`,
      {},
      /models\.m\.threads is not known/,
    ],
    [
      "says what takes the place of a setting that was removed, also for a model with dots in its name",
      `models: { gpt-4.1: { engine: upstream, url: "http://a", model: x, tokenizer: hf:a/b, ${price} } }`,
      {},
      /^inkwell\.yaml:1: models\.gpt-4\.1\.tokenizer was removed; servers that can count are asked, and other prompts are held by their bytes$/,
    ],
    [
      "does not mistake an unknown setting for one that was removed elsewhere",
      `models: { m: { engine: upstream, url: "http://a", model: x, price: { prompt: 1, completion: 1, tokenizer: x } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.price\.tokenizer is not known; /,
    ],
    [
      "refuses an origin with a path",
      "cors: { origins: ['https://a.example/'] }",
      {},
      /cors\.origins\[0\]: found "https:\/\/a\.example\/", expected an origin/,
    ],
    [
      "refuses an origin of an app with a path",
      "cors: { origins: ['app://obsidian.md/'] }",
      {},
      /cors\.origins\[0\]: found "app:\/\/obsidian\.md\/", expected an origin/,
    ],
    ["refuses an alias inside its own value", "plans: &a { p: *a }", {}, /this alias is inside the value/],
    [
      "refuses an invalid hub URL",
      undefined,
      { HF_ENDPOINT: "hub.example" },
      /^HF_ENDPOINT: found "hub\.example", expected a URL/,
    ],
    [
      "refuses one port for both listeners if one has every address",
      "listen: { host: 0.0.0.0, port: 8000 }\noperator: { port: 8000 }",
      {},
      /^inkwell\.yaml:2: operator\.port: 8000 is also the port of listen; choose another$/,
    ],
    [
      "refuses the port of another listener for the portal",
      "operator: { port: 8000 }\nportal: { port: 8000 }",
      {},
      /^inkwell\.yaml:2: portal\.port: 8000 is also the port of operator; choose another$/,
    ],
    [
      "refuses the default port of the portal if another listener has it",
      "listen: { port: 8082 }",
      { INKWELL_PORTAL_HOST: "0.0.0.0" },
      /portal\.port: 8082 is also the port of listen; choose another$/,
    ],
    [
      "requires a map for the portal",
      "portal: on",
      {},
      /^inkwell\.yaml:1: portal: found "on", expected a map with the keys host, port, url, keys$/,
    ],
    [
      "refuses a URL of the portal without its scheme",
      'portal: { url: "ai.example" }',
      {},
      /^inkwell\.yaml:1: portal\.url: found "ai\.example", expected a URL that begins with http/,
    ],
    [
      "does not show part of a password without escapes as a database name",
      "database: postgres://me:p@ss/word@db.example/inkwell",
      {},
      /^inkwell\.yaml:1: database: found a text of \d+ characters \(not shown\), expected .* \(percent-encode reserved characters\)$/,
    ],
    [
      "refuses a secret that is not text",
      "operator: { token: 12345678901234567890 }",
      {},
      /^inkwell\.yaml:1: operator\.token: found a value that is not text, expected at least 16 characters/,
    ],
    [
      "reports only the unknown engine of a model, also if it has other keys",
      `models:\n  m: { engine: upstrem, url: "http://a", model: x, idle_seconds: 5, ${price} }`,
      {},
      /^inkwell\.yaml:2: models\.m\.engine: found "upstrem", expected llama or upstream$/,
    ],
    [
      "suggests an optional key for a misspelled one",
      `models: { m: { engine: llama, source: default, ${price}, reasonin: { tags: [] } } }`,
      {},
      /models\.m\.reasonin is not known; did you mean reasoning\?/,
    ],
    [
      "names the only key of a section",
      "log: loud",
      {},
      /^inkwell\.yaml:1: log: found "loud", expected a map with the key level$/,
    ],
    [
      "reports an unquoted placeholder inside braces once, with the remedy",
      "models: { m: { engine: upstream, key: ${NOWHERE}, model: x } }",
      {},
      /^inkwell\.yaml:1: this is not valid YAML: .* \(inside \{ \} or \[ \] write it in quotes: "\$\{NAME\}"\)$/,
    ],
    [
      "names the place of a placeholder in a list",
      'cors: { origins: ["https://a.example", "${NOWHERE}"] }',
      {},
      /^inkwell\.yaml:1: cors\.origins\[1\]: the environment variable NOWHERE is not set/,
    ],
    [
      "refuses a misspelled variable without a path",
      undefined,
      { INKWELL_PROT: "9" },
      /^INKWELL_PROT: no setting has this name; did you mean INKWELL_PORT\?$/,
    ],
    [
      "refuses a misspelled variable of commands",
      undefined,
      { INKWELL_SERVR: "https://ops.example" },
      /^INKWELL_SERVR: no setting has this name; did you mean INKWELL_SERVER\?$/,
    ],
    [
      "refuses a misspelled variable of the file",
      undefined,
      { INKWELL_CONFI: "other.yaml" },
      /^INKWELL_CONFI: .* did you mean INKWELL_CONFIG\?$/,
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

  const systemPrompts: [written: string, shown: string][] = [
    ["5", "5"],
    ["true", "true"],
    ['""', '""'],
    ['" \\n "', '" \\n "'],
    ['"half \\ud83d"', '"half \\ud83d"'],
    ["[a]", "a list"],
    ["{ a: b }", "a map of keys"],
    [`"${"x".repeat(16_385)}"`, `"${"x".repeat(80)}..."`],
  ];
  for (const [written, shown] of systemPrompts) {
    test(`refuses the system prompt ${written.slice(0, 20)}`, () => {
      const [llama, upstream] = [
        "engine: llama, source: default",
        'engine: upstream, url: "http://a", model: x',
      ];
      for (const engine of [llama, upstream]) {
        const yaml = `models: { m: { ${engine}, ${price}, system_prompt: ${written} } }`;
        assert.deepEqual(problemsOf(yaml), [
          `inkwell.yaml:1: models.m.system_prompt: found ${shown}, expected a text of 1 to 16384 characters that is ` +
            "not blank (leave the key out for no system prompt)",
        ]);
      }
    });
  }

  test("with one mistake has one message", () => {
    for (const [sentence, yaml, env] of cases) {
      const several = /without its base bucket|no plan at all|plain|own mistakes|alias/;
      if (several.test(sentence)) continue;
      assert.equal(problemsOf(yaml, env).length, 1, `${sentence}: ${problemsOf(yaml, env).join(" | ")}`);
    }
  });
});
