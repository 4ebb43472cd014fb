/** Invalid configurations: one message has all faults, each with its place and the valid form. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of
// this form.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  oneModel,
  type Problems,
  price,
  problemsOf,
  refuses,
  refusesEach,
} from "../fixtures/configuration.ts";

const ofFile: Problems = {
  "listen: { port: 1 }\nlisten: { port: 2 }": /^inkwell\.yaml:2: the key "listen" occurs twice$/,
  // Only the duplicate key is reported, because its content is unknown.
  "plans:\n  p: { base: 1 }\nplans:\nlisten: 5": /^inkwell\.yaml:3: the key "plans" occurs twice$/,
  "listen: { port: {{ port }} }":
    /^inkwell\.yaml:1: a key is a map, a list or an alias; a text needs quotes$/,
  // Names are as written.
  '8: 1\n"8": 2': /^inkwell\.yaml:2: the key "8" occurs twice$/,
  // They can be secrets, so they are not shown.
  "plans: *nowhere":
    /^inkwell\.yaml:1: a value that begins with \* is an alias, and its & is not above; a text needs quotes$/,
  "plans: *later\nlog: &later {}":
    /^inkwell\.yaml:1: a value that begins with \* is an alias, and its & is not above; a text needs quotes$/,
  "operator: { token: !nowhere }":
    /^inkwell\.yaml:1: this is not valid YAML: a value that begins with ! is a tag, which is not read; a text needs quotes$/,
  "operator:\n  token: !no!where":
    /^inkwell\.yaml:2: this is not valid YAML: a value that begins with ! is a tag, which is not read; a text needs quotes$/,
  "operator:\n  token: |nowhere":
    /^inkwell\.yaml:2: this is not valid YAML: Block scalar header includes extra characters$/,
  "log: !foo { level: info }":
    /^inkwell\.yaml:1: this is not valid YAML: a value that begins with ! is a tag/,
  "listen: &a { port: 8000 }\noperator:\n  <<: *a\n  token: x":
    /^inkwell\.yaml:3: merge keys \(<<\) are not read; write the settings out$/,
  "listen:\n  host: a\n    port: 1":
    /^inkwell\.yaml:2: this is not valid YAML: there is a second colon, or a key is indented too far; a text with/,
  "system_prompt: Note: be nice":
    /^inkwell\.yaml:1: this is not valid YAML: there is a second colon, or a key/,
  "log: {}\n---\nlog: {}": /^inkwell\.yaml:2: this is not valid YAML: a line of --- begins a second document/,
  "listen:\n\tport: 1": /^inkwell\.yaml:2: this is not valid YAML: .*[Tt]ab/,
  "- a": /^inkwell\.yaml:1: found a list, expected keys/,
  "listen: 8080": /^inkwell\.yaml:1: listen: found 8080, expected a map with the keys host, port, url$/,
  "listen: { colour: 1 }": /listen\.colour is not known; the keys here are host, port/,
  'listen: { port: "80" }': /found "80", expected a port/,
  "limits: { queue: 1.5 }": /limits\.queue: found 1\.5/,
  "data:": /data: found nothing, expected a path/,
  "currency: EUR":
    /^inkwell\.yaml:1: currency: found "EUR", expected a map with the keys code, credits_1000$/,
  "currency: { code: euro, credits_1000: 1 }": /currency\.code: found "euro", expected .* such as EUR$/,
  "currency: { code: EUR }": /currency\.credits_1000 is missing/,
  "currency: { code: EUR, credits_1000: 0 }": /currency\.credits_1000: found 0, expected an amount above 0/,
  "currency: { code: EUR, credits_1000: 0.0000001 }": /credits_1000: found 1e-7, expected .* six decimals$/,
  "currency: { code: EUR, credits_1000: '2.5' }": /credits_1000: found "2\.5", expected an amount/,
  "log: loud": /^inkwell\.yaml:1: log: found "loud", expected a map with the key level$/,
  "cors: { origins: ['https://a.example/'] }":
    /cors\.origins\[0\]: found "https:\/\/a\.example\/", expected an origin/,
  "cors: { origins: ['app://obsidian.md/'] }":
    /cors\.origins\[0\]: found "app:\/\/obsidian\.md\/", expected an origin/,

  // Listeners
  "listen: { host: 'a.example:80' }": /listen\.host: .*without a port/,
  "listen: { host: 1.2.3.456 }": /listen\.host/,
  "operator: { port: 8080 }": /operator\.port: 8080 is also the port of listen/,
  "listen: { host: 0.0.0.0, port: 8000 }\noperator: { port: 8000 }":
    /^inkwell\.yaml:2: operator\.port: 8000 is also the port of listen; choose another$/,
  "operator: { port: 8000 }\nportal: { port: 8000 }":
    /^inkwell\.yaml:2: portal\.port: 8000 is also the port of operator; choose another$/,
  "listen: { port: 8082 }\nportal: { host: 0.0.0.0 }":
    /portal\.port: 8082 is also the port of listen; choose another$/,
  "listen: { host: LOCALHOST, port: 8000 }\noperator: { host: 127.0.0.1, port: 8000 }":
    /^inkwell\.yaml:2: operator\.port: 8000 is also the port of listen; choose another$/,
  "operator: { host: 0.0.0.0 }":
    /inkwell\.yaml:1: operator\.host: 0\.0\.0\.0 can be reached.*INKWELL_OPERATOR_TOKEN/,
  "operator: { token: 12345678901234567890 }":
    /^inkwell\.yaml:1: operator\.token: found a value that is not text, expected at least 16 characters/,
  "operator: { hosts: ops.example }":
    /^inkwell\.yaml:1: operator\.hosts: found "ops\.example", expected a list of host names: \[ops\.example, node-a\]$/,
  "portal: on": /^inkwell\.yaml:1: portal: found "on", expected a map with the keys host, port, url, keys$/,
  'portal: { url: "ai.example" }':
    /^inkwell\.yaml:1: portal\.url: found "ai\.example", expected a URL that begins with http/,

  // Placeholders
  "data: ${NOWHERE}/data": /inkwell\.yaml:1: data: the environment variable NOWHERE is not set/,
  "data: ${NO WHERE}":
    /expected \$\{NAME\} or \$\{NAME:-default\}, without \$\{ in the default; write \$\$\{ for a plain/,
  "data: ${NOWHERE-here}": /^inkwell\.yaml:1: data: found "\$\{NOWHERE-here\}", expected \$\{NAME\} or/,
  "data: ${NOWHERE:-${HOME}}":
    /^inkwell\.yaml:1: data: found "\$\{NOWHERE:-\$\{HOME\}", .* without \$\{ in the default/,
  'cors: { origins: ["https://a.example", "${NOWHERE}"] }':
    /^inkwell\.yaml:1: cors\.origins\[1\]: the environment variable NOWHERE is not set/,
  // Without quotes inside braces.
  "listen: { host: ${SECRET} }": /in quotes: "\$\{NAME\}"/,
  "models: { m: { engine: upstream, key: ${NOWHERE}, model: x } }":
    /^inkwell\.yaml:1: this is not valid YAML: .* \(inside \{ \} or \[ \] write it in quotes: "\$\{NAME\}"\)$/,

  // Values of variables, and parts of secrets, are not shown.
  "log: { level: '${SECRET}' }": /log\.level: found "\$\{SECRET\}", expected info/,
  "operator: { hosts: '${SECRET}' }": /hosts: found "\$\{SECRET\}", expected a list of host names/,
  "operator: { token: '${NOWHERE:-hunter2}' }":
    /^inkwell\.yaml:1: operator\.token: found a text of 7 characters \(not shown\), expected at least 16/,
  "database: postgres://u:s3cret@${NOWHERE}/d":
    /^inkwell\.yaml:1: database: the environment variable NOWHERE is not set, and \$\{NOWHERE\} has no default$/,
  "database: postgres://me:p@ss/word@db.example/inkwell":
    /^inkwell\.yaml:1: database: found a text of \d+ characters \(not shown\), expected .* \(percent-encode reserved characters\)$/,

  // Plans and models
  "plans: {}": /plans is empty; there must be at least one plan/,
  "models: {}": /models is empty; there must be at least one model/,
  "plans: starter":
    /^inkwell\.yaml:1: plans: found "starter", expected a map of names, each with its own keys$/,
  [`models:\n- ${oneModel}\nplans: { p: { base: { credits: 1, every: P1D }, overage: { credits: 1, every: P1D }, models: [small] } }`]:
    /^inkwell\.yaml:1: models: found a list, expected a map of names, each with its own keys$/,
  "models:\n  m: { engine: llama, source: default }":
    /^inkwell\.yaml:2: models\.m\.price is missing: without it the model would be free for everybody/,
  [`models:\n  m:\n    engine: llama\n    source: https://host.example/100%.gguf\n    ${price}`]:
    /^inkwell\.yaml:4: models\.m\.source: model source https:\/\/host\.example\/100%\.gguf has a % .* write %25 for a %$/,
  [`models:\n  m:\n    engine: upstream\n    url: a.example\n    model: x\n    ${price}`]:
    /^inkwell\.yaml:4: models\.m\.url: found a text of \d+ characters \(not shown\), expected a URL/,
  // The other keys of a model of an unknown engine are not reported.
  [`models:\n  m: { engine: upstrem, url: "http://a", model: x, idle_seconds: 5, ${price} }`]:
    /^inkwell\.yaml:2: models\.m\.engine: found "upstrem", expected llama or upstream$/,
};

/** With more than one message. */
const severalProblems: Problems = {
  "plans: { Big Plan: {} }": /plans: found the name "Big Plan", expected 1 to 64 characters/,
  "plans:\n  p:\n    overage: { credits: 0, every: P1M }\n":
    /inkwell\.yaml:2: plans\.p\.base\.credits is missing/,
};

const ofPlan: Problems = {
  "base: { credits: 1, every: P1D }\n    overage: 5":
    /^inkwell\.yaml:4: plans\.p\.overage: found 5, expected a map with the keys credits, every, align$/,
  "base: { credits: 1.5, every: P1D }\n    overage: { credits: 0, every: P1M }":
    /inkwell\.yaml:3: plans\.p\.base\.credits: found 1\.5, expected whole credits/,
  "base: { credits: 9000001, every: P1D }\n    overage: { credits: 0, every: P1M }": /from 0 to 9000000/,
};
const ofGoodPlan: Problems = {
  "models: [smollm2-135m-instuct]":
    /inkwell\.yaml:5: plans\.p\.models: there is no model "smollm2-135m-instuct"; did you mean smollm2-135m-instruct\?/,
  "models: all": /plans\.p\.models: found "all", expected a list of model ids/,
  "limits: { concurrent: 0 }": /plans\.p\.limits\.concurrent: found 0/,
};

const ofLlama: Problems = {
  "defaults: { temperature: 2.5 }":
    /^inkwell\.yaml:1: models\.m\.defaults\.temperature: found 2\.5, expected a number from 0 to 2$/,
  'defaults: { top_p: "${SECRET}" }':
    /^inkwell\.yaml:1: models\.m\.defaults\.top_p: found "\$\{SECRET\}", expected a number from 0 to 1$/,
  "defaults: { top_k: 1.5 }":
    /^inkwell\.yaml:1: models\.m\.defaults\.top_k: found 1\.5, expected a whole number from 0 to 2147483647$/,
  "defaults: { max_tokens: 0 }":
    /^inkwell\.yaml:1: models\.m\.defaults\.max_tokens: found 0, expected a whole number from 1 to 16777216$/,
  "defaults: { temprature: 1 }":
    /^inkwell\.yaml:1: models\.m\.defaults\.temprature is not known; did you mean temperature\?$/,
  "reasoning: { tags: [a] }": /reasoning\.tags: found 1 texts, expected two texts/,
  "reasonin: { tags: [] }": /models\.m\.reasonin is not known; did you mean reasoning\?/,
};

const ofModel: Problems = {
  [`engine: lama, source: default, ${price}`]: /models\.m\.engine: found "lama", expected llama or upstream/,
  [`engine: llama, source: a.bin, ${price}`]: /models\.m\.source: model source a\.bin is not understood/,
  [`engine: llama, source: "hf:owner/repo", ${price}`]: /models\.m\.source/,
  "engine: llama, source: default, price: { prompt: 1 }":
    /models\.m\.price\.completion is missing; expected whole credits per million tokens/,
  "engine: llama, source: default, price: { prompt: 0.5, completion: 1 }":
    /price\.prompt: found 0\.5, expected whole credits/,
  "engine: llama, source: default, price: { prompt: 1, completion: -1 }": /price\.completion: found -1/,
};

const ofUpstream: Problems = {
  'url: "https://a.example/v1/chat/completions", model: x':
    /models\.m\.url: .* ends before \/chat\/completions/,
  'url: "https://me:hunter2@a.example/v1", model: x':
    /models\.m\.url: found a text of \d+ characters \(not shown\).*set the key with key/,
  "model: x": /models\.m\.url is missing; expected a URL/,
  'url: "http://a", urls: ["http://b"], model: x': /models\.m: found both url and urls, expected one of them/,
  'url: "http://a"': /models\.m\.model is missing; expected the model's name at the upstream/,
  'url: "http://a", model: x, dialect: tgi':
    /models\.m\.dialect: found "tgi", expected compatible, openai, vllm, sglang, llama-server or ollama/,
  'url: "http://a", model: x, threads: 2': /models\.m\.threads is not known/,
};

const notHosts = [
  ...["http://ops.example", "ops.example:8081", "ops.example/admin", "*.example", "10.0.0.1", "127.1", "::1"],
  ...["[::1]", "me@ops.example", "ops..example", "ops.example?x", "ops\u00adexample:1", "two words"],
  `${"a".repeat(64)}.example`,
];
const hostRule =
  /^inkwell\.yaml:1: operator\.hosts\[1\]: found ".*", expected a host name such as ops\.example, without scheme, port, path or wildcard \(IP addresses and localhost are always accepted\)$/;

const notUrls = [
  ...["ops.example", "ftp://ops.example", "https://me@ops.example", "https://ops.example/?a=1", "https://"],
];
const urlRule =
  /^inkwell\.yaml:1: operator\.url: found ".*", expected a URL that begins with http:\/\/ or https:\/\//;

const tooLong = [
  ...["P300000Y", "P999999Y999999M", "P11Y", "P121M", "P999999M", "P999999W", "PT999999H", "P1000000D"],
  "P999999W999999DT999999H999999M",
];

const ofVariables: [name: string, value: string, problem: RegExp][] = [
  ["INKWELL_OPERATOR_TOKEN", "hunter2", /operator\.token: found a text of 7 characters \(not shown\), exp/],
  ["INKWELL_DATABASE", "postgres://u:s3cr/et@h:x/d", /or postgres:\/\/USER/],
  [
    "INKWELL_DATABASE",
    "mysql://u:p@h/d",
    /database: found a text of \d+ .*\(not shown\), expected sqlite:PATH/,
  ],
  ["HF_ENDPOINT", "hub.example", /^HF_ENDPOINT: found "hub\.example", expected a URL/],
  ["INKWELL_PROT", "9", /^INKWELL_PROT: no setting has this name; did you mean INKWELL_PORT\?$/],
  ["INKWELL_SERVR", "https://a", /^INKWELL_SERVR: no setting has this name; did you mean INKWELL_SERVER\?$/],
  ["INKWELL_CONFI", "other.yaml", /^INKWELL_CONFI: .* did you mean INKWELL_CONFIG\?$/],
];

/** Variables that suggest a setting, and the setting. */
const unreadVariables = {
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
};

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
      "INKWELL_LIMITS__QUEUE: this variable is not read; set limits.queue in inkwell.yaml, where ${NAME} reads a variable",
    ]);
  });

  refusesEach(ofFile);
  for (const [yaml, problem] of Object.entries(severalProblems)) refuses(yaml, problem, {}, true);
  const planOf = (inside: string) => `plans:\n  p:\n    ${inside}\n`;
  const goodPlan = "base: { credits: 1, every: P1D }\n    overage: { credits: 0, every: P1M }\n";
  refusesEach(ofPlan, planOf);
  refusesEach(ofGoodPlan, (text) => planOf(`${goodPlan}    ${text}`));
  for (const every of tooLong)
    refuses(
      planOf(goodPlan.replace("P1M", every)),
      new RegExp(
        `^inkwell\\.yaml:4: plans\\.p\\.overage\\.every: found "${every}", expected an ISO 8601 period of at`,
      ),
    );
  const modelOf = (inside: string) => `models: { m: { ${inside} } }`;
  refusesEach(ofModel, modelOf);
  refusesEach(ofLlama, (text) => modelOf(`engine: llama, source: default, ${price}, ${text}`));
  refusesEach(ofUpstream, (text) => modelOf(`engine: upstream, ${text}, ${price}`));
  for (const host of notHosts)
    refuses(`operator: { hosts: [ops.example, ${JSON.stringify(host)}] }`, hostRule);
  for (const url of notUrls) refuses(`operator: { url: "${url}" }`, urlRule);
  for (const [name, value, problem] of ofVariables) refuses(undefined, problem, { [name]: value });
  for (const [name, place] of Object.entries(unreadVariables)) {
    const is = `this variable is not read; set ${place} in inkwell.yaml, where \${NAME} reads a variable`;
    test(`is refused: ${name}`, () =>
      assert.deepEqual(problemsOf(undefined, { [name]: "hunter2" }), [`${name}: ${is}`]));
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
});
