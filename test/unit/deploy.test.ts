/**
 * What lies in deploy/ against the service that it is for: every metric and label that a panel or an alert asks for
 * exists, every setting is one that the configuration knows, every file that is named is there, every alert has its
 * paragraph. What takes other programs is checked where the machine has them.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import { operatorNames } from "../../src/config/operator.ts";
import { loadConfig } from "../../src/config.ts";
import { catalogue } from "../../src/errors.ts";
import { startOperator } from "../fixtures/operator.ts";
import { until } from "../fixtures/program.ts";
import { exchange, parseAnswer, readAll } from "../fixtures/raw-http.ts";
import { babble, startService } from "../fixtures/service.ts";

const root = path.join(import.meta.dirname, "../..");
const textOf = (file: string) => readFileSync(path.join(root, file), "utf8");

type Fields = Record<string, unknown>;

function fieldsOf(value: unknown): Fields {
  assert.ok(typeof value === "object" && value !== null && !Array.isArray(value), `${value} is a map`);
  return { ...value };
}

function listOf(value: unknown): unknown[] {
  assert.ok(Array.isArray(value), `${value} is a list`);
  return value;
}

/** Every value below that stands under this key. */
function valuesUnder(key: string, below: unknown): unknown[] {
  if (Array.isArray(below)) return below.flatMap((each) => valuesUnder(key, each));
  if (typeof below !== "object" || below === null) return [];
  return Object.entries(below).flatMap(([name, value]) => [
    ...(name === key ? [value] : []),
    ...valuesUnder(key, value),
  ]);
}

/** The labels that each metric of a running service has; a histogram's under its own name and those of its parts. */
async function metricsOfService(): Promise<Map<string, Set<string>>> {
  await using service = await startService({ script: babble("word ", { tokenDelayMs: 1 }) });
  await using operator = await startOperator(service);
  await (await service.chat({ stream: true, max_tokens: 3 })).text();
  await (await service.chat({ max_tokens: 3 })).text();
  const [receipt] = service.settled;
  assert.ok(receipt !== undefined);
  service.metrics.settled({ ...receipt, usage: { ...receipt.usage, estimated: true } });
  service.metrics.decoded("small", 2);
  const { text } = await operator.get("/metrics");
  const known = new Map<string, Set<string>>();
  for (const [, name = ""] of text.matchAll(/^# TYPE (\w+)/gm)) known.set(name, new Set());
  for (const [, name = "", labels = ""] of text.matchAll(/^(\w+)(?:\{(.*)\})? /gm)) {
    const names = known.get(name) ?? new Set();
    for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) names.add(label);
    known.set(name, names);
  }
  return known;
}

/** What Prometheus adds to what it scrapes. */
const addedLabels = ["instance", "job"];

/** Fails where an expression asks for a metric or a label that nobody would find. */
function assertAnswerable(expression: string, metrics: ReadonlyMap<string, ReadonlySet<string>>): void {
  const names = [...expression.matchAll(/\b(up|(?:inkwell|nodejs|process)_\w+)\b/g)].map(
    ([, name = ""]) => name,
  );
  assert.ok(names.length > 0, `${expression} asks for a metric`);
  const labels = new Set(addedLabels);
  for (const name of names) {
    if (name === "up") continue;
    const known = metrics.get(name);
    assert.ok(known !== undefined, `${expression}: there is no metric ${name}`);
    for (const label of known) labels.add(label);
  }
  const inSelectors = [...expression.matchAll(/\{([^}]*)\}/g)].flatMap(([, inside = ""]) =>
    [...inside.matchAll(/(\w+)\s*(?:=~|!=|!~|=)\s*"/g)].map(([, label = ""]) => label),
  );
  for (const [, codes = ""] of expression.matchAll(/\bcode=~?"([^"]+)"/g)) {
    for (const code of codes.split("|"))
      assert.ok(code in catalogue, `${expression}: there is no code ${code}`);
  }
  const inGroups = [...expression.matchAll(/\bby\s*\(([^)]*)\)/g)].flatMap(([, inside = ""]) =>
    inside.split(",").map((label) => label.trim()),
  );
  for (const label of [...inSelectors, ...inGroups].filter((each) => each !== "")) {
    assert.ok(labels.has(label), `${expression}: no metric in it has the label ${label}`);
  }
}

describe("metrics", () => {
  let metrics: Map<string, Set<string>>;
  before(async () => {
    metrics = await metricsOfService();
  });

  test("every panel and every variable of the dashboard asks for what is there", () => {
    const dashboard = fieldsOf(JSON.parse(textOf("deploy/grafana/inkwell.json")));
    const expressions = valuesUnder("expr", dashboard.panels);
    assert.ok(expressions.length >= 20);
    for (const expression of expressions) assertAnswerable(String(expression), metrics);
    for (const query of valuesUnder("query", dashboard.templating)) {
      const [, name, label] = /^label_values\((\w+), (\w+)\)$/.exec(String(query)) ?? [];
      if (name !== undefined) assertAnswerable(`${name}{${label}=""}`, metrics);
    }
    const ids = valuesUnder("id", dashboard.panels);
    assert.equal(new Set(ids).size, ids.length, "each panel has an id of its own");
  });

  test("every metric of Inkwell's own is on the dashboard, and in docs/operating.md with its labels", () => {
    const dashboard = textOf("deploy/grafana/inkwell.json");
    const rows = new Map(
      textOf("docs/operating.md")
        .split("\n")
        .filter((line) => line.startsWith("| `inkwell_"))
        .map((line) => {
          const [, name = "", labels = ""] = line.split("|");
          return [
            name.trim().replaceAll("`", ""),
            [...labels.matchAll(/`(\w+)`/g)].map(([, label = ""]) => label),
          ];
        }),
    );
    const own = [...metrics.keys()].filter(
      (name) => name.startsWith("inkwell_") && !(/_(bucket|sum|count)$/.test(name) && !rows.has(name)),
    );
    assert.deepEqual(own.toSorted(), [...rows.keys()].toSorted());
    for (const name of own) {
      assert.ok(dashboard.includes(name), `${name} is on the dashboard`);
      const labels = [...(metrics.get(name) ?? []), ...(metrics.get(`${name}_count`) ?? [])];
      assert.deepEqual(
        [...labels].toSorted(),
        rows.get(name)?.toSorted(),
        `${name} is documented with its labels`,
      );
    }
  });

  test("every alert can be answered, and has a paragraph that says what to do", () => {
    const alerts = valuesUnder("rules", parse(textOf("deploy/prometheus/alerts.yml")))
      .flatMap(listOf)
      .map(fieldsOf);
    assert.ok(alerts.length >= 10);
    const paragraphs = [...textOf("docs/operating.md").matchAll(/^#+ (Inkwell\w+)$/gm)].map(
      ([, name]) => name,
    );
    assert.deepEqual(
      alerts.map(({ alert }) => alert).toSorted(),
      paragraphs.toSorted(),
      "one paragraph for each alert",
    );
    for (const { alert, expr, labels, annotations } of alerts) {
      assertAnswerable(String(expr), metrics);
      assert.match(String(fieldsOf(labels).severity), /^(critical|warning|info)$/);
      const { summary, runbook } = fieldsOf(annotations);
      assert.ok(typeof summary === "string" && summary !== "");
      assert.equal(runbook, `docs/operating.md#${String(alert).toLowerCase()}`);
    }
  });
});

/** What the configuration makes of these variables; throws where it knows one of them not. */
function configWith(env: Record<string, string>) {
  const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-deploy-"));
  try {
    return loadConfig({ cwd, env });
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

const known = new Set(textOf("inkwell.example.yaml").match(/INKWELL_[A-Z_]+/g));

function assertKnown(variables: Iterable<string>): void {
  for (const name of variables) {
    if (name.startsWith("INKWELL_") && !name.includes("__"))
      assert.ok(known.has(name), `${name} is a setting`);
  }
}

describe("the image", () => {
  const instructions = textOf("deploy/Dockerfile")
    .replaceAll(/^#.*\n/gm, "")
    .replaceAll("\\\n", " ")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.split(/\s+/));
  const of = (name: string) =>
    instructions.filter(([first]) => first === name).map((words) => words.slice(1));

  test("copies what exists, all of which its ignore file lets through, and nothing that is missing at run time", () => {
    const copied = of("COPY")
      .filter(([first]) => !first?.startsWith("--from"))
      .flatMap((words) => words.slice(0, -1));
    const allowed = textOf(".dockerignore")
      .match(/^!.+$/gm)
      ?.map((line) => line.slice(1));
    assert.deepEqual([...new Set(copied)].toSorted(), allowed?.toSorted());
    for (const file of copied) assert.ok(existsSync(path.join(root, file)), `${file} exists`);
    const manifest = fieldsOf(JSON.parse(textOf("package.json")));
    for (const version of Object.values(fieldsOf(manifest.dependencies))) {
      const [, folder] = /^file:(.+)$/.exec(String(version)) ?? [];
      if (folder !== undefined) assert.ok(copied.includes(folder), `npm ci needs ${folder}`);
    }
  });

  test("its settings are known, let nobody in without a token, and listen where a container must", () => {
    const env = Object.fromEntries(
      of("ENV")
        .flat()
        .filter((pair) => pair !== "")
        .map((pair) => [pair.split("=")[0] ?? "", pair.split("=").slice(1).join("=")]),
    );
    assertKnown(Object.keys(env));
    assert.throws(() => configWith(env), /operator\.token must be set/);
    const config = configWith({ ...env, INKWELL_OPERATOR_TOKEN: "a-token-of-the-operator" });
    assert.equal(config.listen.host, "0.0.0.0");
    assert.equal(config.dataDir, of("VOLUME")[0]?.[0]);
    assert.deepEqual(of("EXPOSE")[0], [`${config.listen.port}`, `${config.operator.port}`]);
  });

  test("does not run as root, is asked for its health by its own node, and starts the program itself", () => {
    assert.match(of("USER").at(-1)?.[0] ?? "", /^[1-9]\d*:[1-9]\d*$/);
    assert.ok(of("HEALTHCHECK").some((words) => words.join(" ").includes("'/healthz'")));
    const [entry] = of("ENTRYPOINT").map((words): unknown => JSON.parse(words.join(" ")));
    const [program, script] = listOf(entry);
    assert.equal(program, "node");
    assert.ok(existsSync(path.join(root, String(script).replace("/app/", ""))));
  });
});

/** The configuration that compose.yaml gives to a node. */
function configOfNode(name: string) {
  const compose = fieldsOf(parse(textOf("deploy/compose.yaml"), { merge: true }));
  const { environment } = fieldsOf(fieldsOf(compose.services)[name]);
  const filledIn = Object.entries(fieldsOf(environment)).map(([variable, value]) => [
    variable,
    // As an operator would fill it in.
    String(value).replace(/\$\{\w+:\?[^}]*\}/, "secret-of-the-operator"),
  ]);
  return configWith(Object.fromEntries(filledIn));
}

test("compose: nodes that wait for the database, settings that are known, files that exist, a stop longer than the drain", () => {
  const compose = fieldsOf(parse(textOf("deploy/compose.yaml"), { merge: true }));
  const services = fieldsOf(compose.services);
  const volumes = Object.keys(fieldsOf(compose.volumes));
  for (const [name, each] of Object.entries(services)) {
    const service = fieldsOf(each);
    for (const mount of listOf(service.volumes).map(String)) {
      const [source = ""] = mount.split(":");
      const exists = source.startsWith(".")
        ? existsSync(path.join(root, "deploy", source))
        : volumes.includes(source);
      assert.ok(exists, `${name} mounts ${source}`);
    }
  }
  for (const name of ["node-a", "node-b"]) {
    const node = fieldsOf(services[name]);
    const { context, dockerfile } = fieldsOf(node.build);
    assert.ok(existsSync(path.join(root, "deploy", String(context), String(dockerfile))));
    assert.deepEqual(node.depends_on, { postgres: { condition: "service_healthy" } });
    assertKnown(Object.keys(fieldsOf(node.environment)));
    const { limits, database } = configOfNode(name);
    assert.deepEqual(database, {
      kind: "postgres",
      url: "postgres://inkwell:secret-of-the-operator@postgres:5432/inkwell",
    });
    const settleMs = 10_000;
    const graceMs = Number.parseInt(String(node.stop_grace_period), 10) * 1000;
    assert.ok(limits.unreadyMs > 2 * 1000, "the balancer notices within two of its looks");
    assert.ok(graceMs > limits.unreadyMs + limits.drainMs + settleMs);
  }
  assert.ok(fieldsOf(fieldsOf(services.postgres).healthcheck).test !== undefined);
});

test("the balancers know the nodes, and Prometheus too", () => {
  const services = Object.keys(fieldsOf(fieldsOf(parse(textOf("deploy/compose.yaml"))).services));
  const servers = [...textOf("deploy/haproxy.cfg").matchAll(/^ {2}server (\S+) (\S+):(\d+)$/gm)];
  assert.deepEqual(
    servers.map(([, , host, port]) => [host, port]),
    [
      ["node-a", "8080"],
      ["node-b", "8080"],
    ],
  );
  const targets = valuesUnder("targets", parse(textOf("deploy/prometheus/prometheus.yml"))).flatMap(listOf);
  for (const host of [
    ...servers.map(([, , host]) => host),
    ...targets.map((each) => String(each).split(":")[0]),
  ]) {
    assert.ok(services.includes(host ?? ""), `${host} is a service of compose.yaml`);
  }
  const bodyMax = /client_max_body_size (\d+)m;/.exec(textOf("deploy/nginx.conf"))?.[1];
  assert.ok(Number(bodyMax) * 1024 * 1024 > configWith({}).limits.bodyBytesMax);
});

describe("the operator's listener responds to", () => {
  test("Prometheus, which sends the target as Host", async () => {
    await using service = await startService();
    await using operator = await startOperator(service, operatorNames(configOfNode("node-a").operator));
    const targets = valuesUnder("targets", parse(textOf("deploy/prometheus/prometheus.yml"))).flatMap(listOf);
    assert.ok(targets.length > 0);
    for (const target of targets) {
      const request = `GET /metrics HTTP/1.1\r\nHost: ${target}\r\nConnection: close\r\n\r\n`;
      const { status, body } = parseAnswer(await exchange(Number(new URL(operator.url).port), request));
      assert.equal(status, 200, `${target}: ${body}`);
    }
  });

  test("HAProxy, which sends HTTP/1.0 without Host", async () => {
    const [, request = ""] =
      /^ {2}http-check send meth (\S+ uri \S+)$/m.exec(textOf("deploy/haproxy.cfg")) ?? [];
    const [method, target] = request.split(" uri ");
    await using service = await startService();
    await using operator = await startOperator(service, operatorNames(configOfNode("node-a").operator));
    const bytes = `${method} ${target} HTTP/1.0\r\n\r\n`;
    const { status, body } = parseAnswer(await exchange(Number(new URL(operator.url).port), bytes));
    assert.equal(status, 200, body);
  });

  test("HAProxy itself, with deploy/haproxy.cfg", { skip: missing("haproxy", "-v") }, async () => {
    await using service = await startService();
    await using operator = await startOperator(service, operatorNames(configOfNode("node-a").operator));
    const folder = newFolder();
    const socket = path.join(folder, "stats");
    const file = path.join(folder, "haproxy.cfg");
    const text = textOf("deploy/haproxy.cfg")
      .replace("log stdout format raw local0", `stats socket ${socket}`)
      .replace(/^resolvers docker\n(?: .*\n)+/m, "")
      .replaceAll(" resolvers docker", "")
      .replace("bind :8080", `bind unix@${folder}/public`)
      .replace("check port 8081", `check port ${new URL(operator.url).port}`)
      .replaceAll(/node-[ab]:8080/g, `127.0.0.1:${service.port}`);
    writeFileSync(file, text);
    const haproxy = spawn("haproxy", ["-f", file], { stdio: "ignore" });
    try {
      await until("HAProxy has checked both nodes", async () => {
        const checked = await checksOf(socket);
        assert.ok(
          checked.every((status) => ["", "INI", "L7OK"].includes(status)),
          `${checked}`,
        );
        return checked.filter((status) => status === "L7OK").length === 2;
      });
    } finally {
      haproxy.kill("SIGKILL");
    }
  });
});

/** Status of the last check of each server of `nodes`; no rows until HAProxy listens. */
async function checksOf(socket: string): Promise<string[]> {
  if (!existsSync(socket)) return [];
  const asking = connect(socket);
  asking.end("show stat nodes 4 -1\n");
  const [head = "", ...rows] = (await readAll(asking)).replace("# ", "").split("\n");
  const column = head.split(",").indexOf("check_status");
  return column === -1
    ? []
    : rows.filter((row) => row !== "").map((row) => (row.split(",")[column] ?? "").replace("* ", ""));
}

describe("the unit", () => {
  const text = textOf("deploy/inkwell.service");
  const setting = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(text)?.[1];

  test("starts the program itself, signals it alone, and waits for longer than it takes to stop", () => {
    const [node = "", script = "", command] = setting("ExecStart")?.split(" ") ?? [];
    assert.equal(node, "/opt/inkwell/node_modules/.bin/node");
    assert.ok(existsSync(path.join(root, script.replace("/opt/inkwell/", ""))));
    assert.equal(command, "serve");
    assert.equal(setting("KillMode"), "mixed");
    const [name = "", value = ""] = setting("Environment")?.split("=") ?? [];
    assertKnown([name]);
    const { limits, dataDir } = configWith({ [name]: value });
    assert.equal(dataDir, `/var/lib/${setting("StateDirectory")}`);
    assert.ok(Number(setting("TimeoutStopSec")) * 1000 > limits.drainMs + 10_000);
  });

  test("the documented commands run as it does: same user, folder, data and secrets", () => {
    const command = /^systemd-run ([^`]*) account list$/m.exec(textOf("docs/operating.md"))?.[1] ?? "";
    const words = command.replaceAll("\\\n", " ").split(/\s+/);
    const given = (option: string) => words.filter((_, index) => words[index - 1] === option);
    assert.deepEqual(given("-p").toSorted(), [
      `EnvironmentFile=${setting("EnvironmentFile")}`,
      `UMask=${setting("UMask")}`,
      `WorkingDirectory=${setting("WorkingDirectory")}`,
    ]);
    assert.deepEqual(given("-E"), [setting("Environment")]);
    assert.ok(words.includes(`--uid=${setting("User")}`));
    assert.deepEqual(words.slice(-2), setting("ExecStart")?.split(" ").slice(0, 2));
  });

  test("systemd finds nothing wrong with it", { skip: missing("systemd-analyze", "--version") }, () => {
    const file = path.join(newFolder(), "inkwell.service");
    writeFileSync(file, text.replaceAll("/opt/inkwell/node_modules/.bin/node", process.execPath));
    run("systemd-analyze", "verify", "--man=no", file);
  });
});

describe("its own program finds nothing wrong with", () => {
  test("the configuration of Prometheus, and the alerts", { skip: missing("promtool", "--version") }, () => {
    run("promtool", "check", "config", path.join(root, "deploy/prometheus/prometheus.yml"));
  });

  test("haproxy.cfg", { skip: missing("haproxy", "-v") }, () => {
    run("haproxy", "-c", "-f", path.join(root, "deploy/haproxy.cfg"));
  });

  test("nginx.conf", { skip: missing("nginx", "-v") }, () => {
    const folder = newFolder();
    // What it would listen on it opens for the check too, and port 80 is not for everybody.
    const socket = `listen unix:${folder}/socket;`;
    const included = path.join(folder, "inkwell.conf");
    writeFileSync(included, textOf("deploy/nginx.conf").replace("listen 80;", socket));
    const file = path.join(folder, "nginx.conf");
    writeFileSync(file, `pid ${folder}/pid; events {} http { access_log off; include ${included}; }`);
    run("nginx", "-t", "-p", folder, "-c", file, "-e", "stderr");
  });

  test("compose.yaml", { skip: missing("docker", "compose", "version") }, () => {
    const secrets = { POSTGRES_PASSWORD: "secret", INKWELL_OPERATOR_TOKEN: "a-token-of-the-operator" };
    const args = [
      "compose",
      "-f",
      path.join(root, "deploy/compose.yaml"),
      "--profile",
      "monitoring",
      "config",
    ];
    const said = execFileSync("docker", args, { env: { ...process.env, ...secrets }, stdio: "pipe" });
    const { services } = fieldsOf(parse(String(said)));
    assert.deepEqual(Object.keys(fieldsOf(services)).toSorted(), [
      "balancer",
      "node-a",
      "node-b",
      "postgres",
      "prometheus",
    ]);
  });
});

test("the alert of failing requests counts those of chat against those of chat", {
  skip: missing("promtool", "--version"),
}, () => {
  const perMinute = (endpoint: string, code: string, requests: number) => ({
    series: `inkwell_requests_total{endpoint="${endpoint}",code="${code}"}`,
    values: `0+${requests}x30`,
  });
  const chat = "/v1/chat/completions";
  const alert = {
    exp_labels: { severity: "critical" },
    exp_annotations: {
      summary: "More than 5 % of the chat requests fail",
      runbook: "docs/operating.md#inkwellservererrors",
    },
  };
  const file = path.join(newFolder(), "test.yml");
  const tests = [
    {
      // One in twenty-five, and no other endpoint that answers.
      input_series: [
        perMinute(chat, "", 96),
        perMinute(chat, "store_unavailable", 4),
        perMinute("/v1/balance", "store_unavailable", 100),
      ],
      exp_alerts: [],
    },
    {
      // One in ten, and another endpoint that is asked all the time.
      input_series: [
        perMinute(chat, "", 90),
        perMinute(chat, "upstream_error", 10),
        perMinute("/v1/models", "", 1000),
      ],
      exp_alerts: [alert],
    },
  ].map(({ input_series, exp_alerts }) => ({
    interval: "1m",
    input_series,
    alert_rule_test: [{ eval_time: "20m", alertname: "InkwellServerErrors", exp_alerts }],
  }));
  const rule_files = [path.join(root, "deploy/prometheus/alerts.yml")];
  writeFileSync(file, stringify({ rule_files, evaluation_interval: "1m", tests }));
  run("promtool", "test", "rules", file);
});

test("everything in deploy/ is told of in docs/operating.md", () => {
  const documented = textOf("docs/operating.md");
  for (const file of globSync("deploy/**/*.*", { cwd: root }).concat("deploy/Dockerfile")) {
    assert.ok(documented.includes(file), `docs/operating.md names ${file}`);
  }
});

/** Why a test of this program is skipped; false where the machine has it. */
function missing(program: string, ...args: string[]): string | false {
  try {
    execFileSync(program, args, { stdio: "ignore" });
    return false;
  } catch {
    return `this machine has no ${[program, ...args].join(" ")}`;
  }
}

/** Fails with what it said, unless its exit code is 0. */
function run(program: string, ...args: string[]): void {
  execFileSync(program, args, { stdio: "pipe" });
}

/** Gone at the end of the test. */
function newFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), "inkwell-deploy-"));
  after(() => rmSync(folder, { recursive: true }));
  return folder;
}
