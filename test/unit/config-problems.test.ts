/** A wrong configuration: everything wrong is told in one message, each with its place and what would be right. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of this form.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Env, oneModel, price, problemsOf } from "../fixtures/configuration.ts";

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
      /^inkwell\.yaml:2: this is not valid YAML: the key listen is there twice$/,
    ],
    [
      "a key given twice is told alone: what stands under it is anybody's guess",
      "plans:\n  p: { base: 1 }\nplans:\nlisten: 5",
      {},
      /^inkwell\.yaml:3: this is not valid YAML: the key plans is there twice$/,
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
      `an operator's host is a name alone, not ${host}`,
      `operator: { hosts: [ops.example, ${JSON.stringify(host)}] }`,
      {},
      /^inkwell\.yaml:1: operator\.hosts\[1\]: found ".*", expected a host name such as ops\.example, without scheme, port, path or wildcard \(IP addresses and localhost are always accepted\)$/,
    ]),
    [
      "the operator's hosts are a list",
      "operator: { hosts: ops.example }",
      {},
      /^inkwell\.yaml:1: operator\.hosts: found "ops\.example", expected a list of host names: \[ops\.example, node-a\]$/,
    ],
    [
      "the operator's hosts from a variable are checked one by one",
      undefined,
      { INKWELL_OPERATOR_HOSTS: "ops.example, node-a:8081" },
      /^INKWELL_OPERATOR_HOSTS: operator\.hosts\[1\]: found "node-a:8081", expected a host name/,
    ],
    [
      "the operator's hosts have one variable",
      undefined,
      { INKWELL_OPERATOR__HOSTS: "ops.example" },
      /^INKWELL_OPERATOR__HOSTS: operator\.hosts is set by INKWELL_OPERATOR_HOSTS; use that name$/,
    ],
    ...[
      "ops.example",
      "ftp://ops.example",
      "https://me@ops.example",
      "https://ops.example/?a=1",
      "https://",
    ].map((url): (typeof cases)[number] => [
      `the operator's URL is not ${url}`,
      `operator: { url: "${url}" }`,
      {},
      /^inkwell\.yaml:1: operator\.url: found ".*", expected a URL that begins with http:\/\/ or https:\/\//,
    ]),
    [
      "a short operator token is refused and not repeated",
      undefined,
      { INKWELL_OPERATOR_TOKEN: "hunter2" },
      /^INKWELL_OPERATOR_TOKEN: operator\.token: found a text of 7 characters \(not shown\), expected at least 16/,
    ],
    [
      "a missing variable is named",
      "data: ${NOWHERE}/data",
      {},
      /inkwell\.yaml:1: data: the environment variable NOWHERE is not set/,
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
      /^INKWELL_DATABASE: database: found a text of \d+ characters \(not shown\), expected sqlite:PATH, such as sqlite:\.\/data\/inkwell\.db, or postgres:\/\/USER/,
    ],
    [
      "any other database is refused, and its address not repeated",
      undefined,
      { INKWELL_DATABASE: "mysql://u:p@h/d" },
      /database: found a text of \d+ characters \(not shown\), expected sqlite:PATH/,
    ],
    [
      "a variable set by the wrong name says the right one",
      undefined,
      { INKWELL_LISTEN__PORT: "1" },
      /INKWELL_LISTEN__PORT: listen\.port is set by INKWELL_PORT/,
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
      "a default temperature is in the range that requests have",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { temperature: 2.5 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.temperature: found 2\.5, expected a number from 0 to 2$/,
    ],
    [
      "a default top_p from a variable is a number",
      oneModel,
      { INKWELL_MODELS__SMALL__DEFAULTS__TOP_P: "high" },
      /^INKWELL_MODELS__SMALL__DEFAULTS__TOP_P: models\.small\.defaults\.top_p: found "high", expected a number from 0 to 1$/,
    ],
    [
      "a default top_k is whole",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { top_k: 1.5 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.top_k: found 1\.5, expected a whole number from 0 to 2147483647$/,
    ],
    [
      "a default max_tokens is at least 1",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { max_tokens: 0 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.max_tokens: found 0, expected a whole number from 1 to 16777216$/,
    ],
    [
      "a default that no request takes is not known",
      `models: { m: { engine: llama, source: default, ${price}, defaults: { temprature: 1 } } }`,
      {},
      /^inkwell\.yaml:1: models\.m\.defaults\.temprature is not known; did you mean temperature\?$/,
    ],
    [
      "a model without a price would be free (BerriAI/litellm#35524, #37927)",
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
      `a period of more than ten years is refused, however long: ${every}`,
      plan(`    base: { credits: 1, every: P1D }\n    overage: { credits: 0, every: ${every} }`),
      {},
      new RegExp(
        `^inkwell\\.yaml:4: plans\\.p\\.overage\\.every: found "${every}", expected an ISO 8601 period of at`,
      ),
    ]),
    [
      "a source that is no model file is refused",
      `models: { m: { engine: llama, source: a.bin, ${price} } }`,
      {},
      /models\.m\.source: model source a\.bin is not understood/,
    ],
    [
      "a source with a % that stands for nothing is refused",
      `models:\n  m:\n    engine: llama\n    source: https://host.example/100%.gguf\n    ${price}`,
      {},
      /^inkwell\.yaml:4: models\.m\.source: model source https:\/\/host\.example\/100%\.gguf has a % .* write %25$/,
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
      /^inkwell\.yaml:4: models\.m\.url: found a text of \d+ characters \(not shown\), expected an address/,
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
      /models\.m\.url: found a text of \d+ characters \(not shown\).*the key goes into key/,
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
      "an operator's port that only a wider address shares is refused",
      "listen: { host: 0.0.0.0, port: 8000 }\noperator: { port: 8000 }",
      {},
      /^inkwell\.yaml:2: operator\.port: 8000 is also the port of listen; choose another$/,
    ],
    [
      "a password that was not escaped is not taken for the database's name",
      "database: postgres://me:p@ss/word@db.example/inkwell",
      {},
      /^inkwell\.yaml:1: database: found a text of \d+ characters \(not shown\), expected .* written as %XX\)$/,
    ],
    [
      "a secret that is no text is refused as such",
      "operator: { token: 12345678901234567890 }",
      {},
      /^inkwell\.yaml:1: operator\.token: found what is no text, expected at least 16 characters/,
    ],
    [
      "of an engine that is not known nothing more is asked, also by variables",
      `models:\n  m: { engine: upstrem, url: "http://a", model: x, ${price} }`,
      { INKWELL_MODELS__M__IDLE_SECONDS: "5" },
      /^inkwell\.yaml:2: models\.m\.engine: found "upstrem", expected llama or upstream$/,
    ],
    [
      "a slip in a key that few models have is told with what was meant",
      `models: { m: { engine: llama, source: default, ${price}, reasonin: { tags: [] } } }`,
      {},
      /models\.m\.reasonin is not known; did you mean reasoning\?/,
    ],
    [
      "a section of one key names it as one",
      "log: loud",
      {},
      /^inkwell\.yaml:1: log: found "loud", expected a map with the key level$/,
    ],
    [
      "a placeholder inside braces that is not in quotes is told once, with the remedy",
      "models: { m: { engine: upstream, key: ${NOWHERE}, model: x } }",
      {},
      /^inkwell\.yaml:1: this is not valid YAML: .* \(inside \{ \} or \[ \] write it in quotes: "\$\{NAME\}"\)$/,
    ],
    [
      "a placeholder in a list is told with its place",
      'cors: { origins: ["https://a.example", "${NOWHERE}"] }',
      {},
      /^inkwell\.yaml:1: cors\.origins\[1\]: the environment variable NOWHERE is not set/,
    ],
    [
      "a slip in the name of a variable without a path is refused",
      undefined,
      { INKWELL_PROT: "9" },
      /^INKWELL_PROT: this variable names no value of the configuration; did you mean INKWELL_PORT\?$/,
    ],
    [
      "a variable with one underscore between its parts is refused",
      undefined,
      { INKWELL_MODELS_SMOLLM2_135M_INSTRUCT_PRICE_PROMPT: "9" },
      /did you mean INKWELL_MODELS__SMOLLM2_135M_INSTRUCT__PRICE__PROMPT\?$/,
    ],
    [
      "a slip in the name of the variable that names the file is refused",
      undefined,
      { INKWELL_CONFI: "other.yaml" },
      /^INKWELL_CONFI: .* did you mean INKWELL_CONFIG\?$/,
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
      const several = /without its base bucket|no plan at all|plain|own mistakes|alias/;
      if (several.test(sentence)) continue;
      assert.equal(problemsOf(yaml, env).length, 1, `${sentence}: ${problemsOf(yaml, env).join(" | ")}`);
    }
  });
});
