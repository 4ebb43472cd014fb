/**
 * The files in deploy/ match the service: every metric, label, setting and file that they name
 * exists, and every alert has its paragraph. Some tests need other programs and are skipped
 * without them.
 *
 * deploy-listeners.test.ts tests which clients reach the listeners.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, globSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import { serviceTimes } from "../../src/app/service-times.ts";
import { catalogue } from "../../src/errors.ts";
import { instruction, missing, newFolder, nginxArguments, root, textOf } from "../fixtures/deploy.ts";
import {
  assertKnown,
  configOfNode,
  configWith,
  imageEnvironment,
  imageYaml,
} from "../fixtures/deploy-settings.ts";
import { fieldsOf, startOperator } from "../fixtures/operator.ts";
import { babble, startService } from "../fixtures/service.ts";
import { listOf, valuesUnder } from "../fixtures/yaml-values.ts";

/**
 * The labels that each metric of a running service has; a histogram's under its own name and
 * those of its parts.
 */
async function metricsOfService(): Promise<Map<string, Set<string>>> {
  await using service = await startService({ script: babble("word ", { tokenDelayMs: 1 }) });
  await using operator = await startOperator(service);
  await (await service.chat({ stream: true, max_tokens: 3 })).text();
  await (await service.chat({ max_tokens: 3 })).text();
  const [receipt] = service.settled;
  assert.ok(receipt !== undefined);
  service.metrics.charged({ ...receipt, usage: { ...receipt.usage, estimated: true } });
  service.metrics.decoded("small", 2);
  service.metrics.noticed("small", "prompt_cut");
  service.metrics.events.attempted("hook", "delivered");
  service.metrics.events.observe(async () => [
    { name: "hook", pending: 0, dead: 0, failing: 0, nextMs: null, problem: null },
  ]);
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

/** Labels that Prometheus adds. */
const addedLabels = ["instance", "job"];

/** Fails if an expression uses an unknown metric or label. */
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

  test("uses existing metrics in every panel and variable of the dashboard", () => {
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

  test("shows every metric of Inkwell on the dashboard and in docs/operating/metrics.md with its labels", () => {
    const dashboard = textOf("deploy/grafana/inkwell.json");
    const rows = new Map(
      textOf("docs/operating/metrics.md")
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

  test("has existing metrics and a documented remedy for every alert", () => {
    const alerts = valuesUnder("rules", parse(textOf("deploy/prometheus/alerts.yml")))
      .flatMap(listOf)
      .map(fieldsOf);
    assert.ok(alerts.length >= 10);
    const paragraphs = [...textOf("docs/operating/alerts.md").matchAll(/^#+ (Inkwell\w+)$/gm)].map(
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
      assert.equal(runbook, `docs/operating/alerts.md#${String(alert).toLowerCase()}`);
    }
  });
});

test("no job runs so seldom that the alert takes it for one that fails", () => {
  const [, seconds] =
    /inkwell_job_last_success_timestamp_seconds > (\d+)/.exec(textOf("deploy/prometheus/alerts.yml")) ?? [];
  const intervals = [...Object.entries(serviceTimes), ...Object.entries(serviceTimes.events)].filter(
    ([name]) => /EveryMs$|^everyMs$/.test(name),
  );
  assert.ok(intervals.length >= 9);
  for (const [name, ms] of intervals) assert.ok(Number(ms) + 30_000 < Number(seconds) * 1000, name);
});

describe("the image", () => {
  test("copies every file that the service needs", () => {
    const copied = instruction("COPY")
      .filter(([first]) => !first?.startsWith("--from"))
      .flatMap((words) => words.slice(0, -1));
    const allowed = textOf(".dockerignore")
      .match(/^!.+$/gm)
      ?.map((line) => line.slice(1));
    assert.deepEqual([...new Set(copied)].toSorted(), allowed?.toSorted());
    for (const file of copied) assert.ok(existsSync(path.join(root, file)), `${file} exists`);
    // The program finds these files beside dist/, as in the checkout beside src/.
    const files = listOf(fieldsOf(JSON.parse(textOf("package.json"))).files).map(String);
    // Pages about the code, and examples, are of the package alone.
    const ofPackage = (file: string) => ["dist", "examples"].includes(file) || /^[A-Z]+\.md$/.test(file);
    for (const file of files.filter((each) => !ofPackage(each))) {
      const isCopied = copied.some((each) => each === file || file.startsWith(`${each}/`));
      assert.ok(isCopied, `the image has ${file} of the package`);
    }
    const built = instruction("COPY").filter(([first]) => first?.startsWith("--from"));
    assert.deepEqual(
      built.map(([from, path]) => [from, path]),
      ["/app/node_modules", "/app/package.json", "/app/dist"].map((path) => ["--from=build", path]),
    );
  });

  test("has known settings, requires a token and listens on every address", () => {
    const env = imageEnvironment();
    assertKnown(Object.keys(env));
    assert.throws(() => configWith(env), /operator\.token must be set/);
    const config = configWith({ ...env, INKWELL_OPERATOR_TOKEN: "a-token-of-the-operator" });
    assert.equal(config.listen.host, "0.0.0.0");
    assert.equal(config.dataDir, instruction("VOLUME")[0]?.[0]);
    assert.deepEqual(instruction("EXPOSE")[0], [`${config.listen.port}`, `${config.operator.port}`]);
  });

  test("ships a configuration with the defaults, which the documented variables change", () => {
    const { INKWELL_CONFIG = "" } = imageEnvironment();
    const words = instruction("RUN").flat();
    assert.deepEqual(words.slice(words.indexOf("deploy/inkwell.yaml") - 1).slice(0, 3), [
      "cp",
      "deploy/inkwell.yaml",
      INKWELL_CONFIG,
    ]);
    assert.equal(path.dirname(INKWELL_CONFIG), instruction("WORKDIR").at(-1)?.[0]);
    const { file: _, dataDir: __, modelsDir: ___, database: ____, ...defaults } = configWith({}, "listen:\n");
    assert.partialDeepStrictEqual(configWith({}), defaults);
    const variables = {
      INKWELL_OPERATOR_URL: "https://ops.example",
      INKWELL_TIMEZONE: "Europe/Berlin",
      INKWELL_LOG_LEVEL: "warn",
      INKWELL_TRUSTED_PROXY: "172.17.0.1",
      INKWELL_UNREADY_SECONDS: "5",
      INKWELL_DRAIN_SECONDS: "60",
    };
    const { operator, timezone, log, limits } = configWith(variables);
    const { trustedProxies, unreadyMs, drainMs } = limits;
    assert.deepEqual(
      [operator.url, timezone, log.level, trustedProxies, unreadyMs, drainMs],
      ["https://ops.example", "Europe/Berlin", "warn", ["172.17.0.1"], 5000, 60_000],
    );
    const named = (text: string) => new Set(text.match(/INKWELL_\w+/g));
    assert.deepEqual(named(imageYaml), new Set(Object.keys(variables)));
    const documented = named(textOf("docs/operating/containers.md"));
    for (const name of named(imageYaml)) assert.ok(documented.has(name), `${name} is documented`);
  });

  test("is built on images with a pinned digest", () => {
    const stages = new Set(instruction("FROM").flatMap((words) => words.slice(2)));
    for (const [image = ""] of instruction("FROM")) if (!stages.has(image)) assertPinned(image);
    assert.ok(instruction("FROM").length >= 2);
  });

  test("does not run as root, has a health check and starts the program directly", () => {
    assert.match(instruction("USER").at(-1)?.[0] ?? "", /^[1-9]\d*:[1-9]\d*$/);
    assert.ok(instruction("HEALTHCHECK").some((words) => words.join(" ").includes("'/healthz'")));
    const [entry] = instruction("ENTRYPOINT").map((words): unknown => JSON.parse(words.join(" ")));
    assert.deepEqual(entry, ["inkwell"]);
    const link = instruction("RUN").flat();
    const script = link[link.indexOf("/usr/local/bin/inkwell") - 1] ?? "";
    const { bin } = fieldsOf(JSON.parse(textOf("package.json")));
    assert.equal(script, `/app/${String(fieldsOf(bin).inkwell)}`);
    // The first line of the program names "node", which is that of node_modules.
    assert.match(imageEnvironment().PATH ?? "", /^\/app\/node_modules\/\.bin:/);
  });
});

/** By a digest, beside the tag that people read. */
function assertPinned(image: string): void {
  assert.match(image, /^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/, `${image} is pinned`);
}

test("compose: pins images by digest, and lets nodes write only to their volumes", () => {
  const services = fieldsOf(fieldsOf(parse(textOf("deploy/compose.yaml"), { merge: true })).services);
  for (const [name, each] of Object.entries(services)) {
    const service = fieldsOf(each);
    if (service.build === undefined) assertPinned(String(service.image));
    assert.deepEqual(service.security_opt, ["no-new-privileges:true"], name);
  }
  for (const name of ["node-a", "node-b"]) {
    const node = fieldsOf(services[name]);
    assert.deepEqual(node.cap_drop, ["ALL"]);
    assert.equal(node.read_only, true);
    assert.deepEqual(node.tmpfs, ["/tmp"]);
    assert.equal(fieldsOf(node.ulimits).core, 0);
  }
});

test("compose: nodes wait for the database, settings and files exist, and the stop is longer than the drain", () => {
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

test("compose: Grafana finds Prometheus and the dashboard, and its account changes nothing", () => {
  const services = fieldsOf(fieldsOf(parse(textOf("deploy/compose.yaml"), { merge: true })).services);
  const { volumes, environment, ports } = fieldsOf(services.grafana);
  assert.deepEqual(ports, ["127.0.0.1:3000:3000"]);
  const mounts = new Map(
    listOf(volumes).map((mount): [string, string] => {
      const [source = "", target = ""] = String(mount).split(":");
      return [target, source];
    }),
  );
  assert.equal(mounts.get("/etc/grafana/provisioning"), "./grafana/provisioning");
  const files = globSync("deploy/grafana/provisioning/*/*.yaml", { cwd: root });
  assert.deepEqual(files.map((file) => path.dirname(file).split("/").at(-1)).toSorted(), [
    "dashboards",
    "datasources",
  ]);
  const provisioned = files.map((file): unknown => parse(textOf(file)));
  const [source = {}] = valuesUnder("datasources", provisioned).flatMap(listOf).map(fieldsOf);
  const { hostname, port } = new URL(String(source.url));
  assert.equal(source.isDefault, true);
  assert.ok(listOf(fieldsOf(services[hostname]).ports).includes(`127.0.0.1:${port}:${port}`));
  const [folder] = valuesUnder("path", provisioned);
  const dashboard = `${String(folder)}/inkwell.json`;
  assert.equal(mounts.get(dashboard), "./grafana/inkwell.json");
  const settings = fieldsOf(environment);
  assert.equal(settings.GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH, dashboard);
  assert.equal(settings.GF_AUTH_ANONYMOUS_ORG_ROLE, "Viewer");
  assert.equal(settings.GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION, "true");
});

test("trusts no address of clients, and proxies add the address of theirs", () => {
  assert.deepEqual(configWith({}).limits.trustedProxies, []);
  // The networks of Docker, in which only the balancer connects.
  for (const name of ["node-a", "node-b"])
    assert.deepEqual(configOfNode(name).limits.trustedProxies, ["172.16.0.0/12", "192.168.0.0/16"]);
  assert.match(textOf("deploy/haproxy.cfg"), /^ {2}option forwardfor$/m);
  for (const name of ["haproxy.cfg", "nginx.conf"])
    assert.match(textOf(`deploy/${name}`), /^ {2}\S.* Strict-Transport-Security "?max-age=31536000"? /m);
  assert.match(
    textOf("deploy/nginx.conf"),
    /^ {2}proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for;$/m,
  );
});

test("the sites of nginx set nothing for other sites", () => {
  for (const file of globSync("deploy/nginx*.conf", { cwd: root })) {
    if (file.endsWith("snippet.conf")) continue;
    const outer = textOf(file).match(/^[^\s#}]\S*/gm) ?? [];
    const allowed = ["map", "limit_conn_zone", "limit_req_zone", "upstream", "server"];
    assert.deepEqual(
      outer.filter((word) => !allowed.includes(word)),
      [],
      file,
    );
  }
});

test("lists the nodes in the balancers and in Prometheus", () => {
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

describe("the unit", () => {
  const text = textOf("deploy/systemd/inkwell.service");
  const setting = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(text)?.[1];
  const program = setting("ExecStart")?.replace(/ serve$/, "") ?? "";

  test("starts the program directly, signals only it, and waits longer than the stop takes", () => {
    const [node = "", script = "", command] = setting("ExecStart")?.split(" ") ?? [];
    assert.equal(node, "/opt/inkwell/node_modules/.bin/node");
    const { bin } = fieldsOf(JSON.parse(textOf("package.json")));
    assert.equal(script, `/opt/inkwell/node_modules/inkwell/${String(fieldsOf(bin).inkwell)}`);
    assert.equal(command, "serve");
    assert.equal(setting("ExecReload"), `${node} ${script} reload`);
    assert.equal(setting("KillMode"), "mixed");
    const [name = "", value = ""] = setting("Environment")?.split("=") ?? [];
    assertKnown([name]);
    const { limits, dataDir } = configWith({ [name]: value });
    assert.equal(dataDir, `/var/lib/${setting("StateDirectory")}`);
    assert.ok(Number(setting("TimeoutStopSec")) * 1000 > limits.drainMs + 10_000);
  });

  test("denies model processes other users, devices, core dumps and privileged calls", () => {
    const settings: string[] = text.match(/^\w+=.*$/gm) ?? [];
    for (const line of [
      "NoNewPrivileges=yes",
      "CapabilityBoundingSet=",
      "ProtectSystem=strict",
      "ProtectHome=yes",
      "ProtectProc=invisible",
      "PrivateTmp=yes",
      "PrivateDevices=yes",
      "PrivateIPC=yes",
      "NoExecPaths=/var/lib/inkwell",
      "LimitCORE=0",
      "RestrictNamespaces=yes",
      "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
      "SystemCallFilter=@system-service",
      "SystemCallFilter=~@privileged @resources",
    ])
      assert.ok(settings.includes(line), line);
  });

  test("has documented commands with the same user, folder, data and secrets", () => {
    const command =
      /^systemd-run ([^`]*) account list$/m.exec(textOf("docs/operating/starting-and-stopping.md"))?.[1] ??
      "";
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

  test("has jobs with the same program, user, folder, data and secrets, each with a timer", () => {
    const names = ["User", "Group", "WorkingDirectory", "Environment", "EnvironmentFile", "UMask"];
    for (const job of ["backup", "audit"]) {
      const unit = textOf(`deploy/systemd/inkwell-${job}.service`);
      for (const name of names) assert.ok(unit.includes(`\n${name}=${setting(name)}\n`), `${job}: ${name}`);
      const [, command = ""] = /^ExecStart=(.*)$/m.exec(unit) ?? [];
      assert.ok(command.includes(`${program} ${job}`), command);
      const timer = textOf(`deploy/systemd/inkwell-${job}.timer`);
      for (const name of ["OnCalendar", "Persistent"]) assert.match(timer, new RegExp(`^${name}=.+$`, "m"));
    }
  });

  test("has a backup job that copies the ledger, checks the copy and fails if one of them fails", () => {
    const unit = textOf("deploy/systemd/inkwell-backup.service");
    const [, script = ""] = /^ExecStart=\/bin\/sh -ec '(.*)'$/m.exec(unit) ?? [];
    const here = (replaced: string) =>
      script
        .replaceAll("$$", () => "$")
        .replaceAll("%%", "%")
        .replaceAll(program, replaced);
    const said = execFileSync("sh", ["-ec", here("echo")], { encoding: "utf8" });
    assert.match(said, /^backup \/var\/lib\/inkwell-backup\/inkwell-\d{4}-\d\d-\d\d-\d+\.db\naudit\n$/);
    assert.throws(() => execFileSync("sh", ["-ec", here("false")], { stdio: "pipe" }));
  });

  test("has an audit job that records each result, and compares a sound ledger with its last seal", () => {
    const unit = textOf("deploy/systemd/inkwell-audit.service");
    const [, script = ""] = /^ExecStart=\/bin\/sh -ec '(.*)'$/m.exec(unit) ?? [];
    const seals = newFolder();
    const here = (replaced: string) =>
      script
        .replaceAll("$$", () => "$")
        .replaceAll("%%", "%")
        .replace("/var/lib/inkwell-seals", seals)
        .replaceAll(program, replaced);
    // Makes the file of --seal.
    const fake = path.join(newFolder(), "fake.sh");
    writeFileSync(fake, 'echo "$@"; while [ "$1" != --seal ]; do shift; done; echo seal > "$2"');
    const said = () => execFileSync("sh", ["-ec", here(`sh ${fake}`)], { encoding: "utf8" });
    assert.equal(said(), `audit --record --seal ${seals}/new\n`);
    const [seal = ""] = readdirSync(seals);
    assert.match(seal, /^\d{4}-\d\d-\d\d-\d+\.seal$/);
    assert.equal(said(), `audit --record --seal ${seals}/new --against ${seals}/${seal}\n`);
    const kept = readdirSync(seals);
    assert.throws(() => execFileSync("sh", ["-ec", here("false")], { stdio: "pipe" }));
    assert.deepEqual(readdirSync(seals), kept, "an unsound ledger gets no seal");
  });

  test("passes systemd-analyze", { skip: missing("systemd-analyze", "--version") }, () => {
    const folder = newFolder();
    const files = globSync("deploy/systemd/*", { cwd: root }).map((unit) => {
      const file = path.join(folder, path.basename(unit));
      writeFileSync(file, textOf(unit).replaceAll("/opt/inkwell/node_modules/.bin/node", process.execPath));
      return file;
    });
    assert.equal(files.length, 5);
    run("systemd-analyze", "verify", "--man=no", ...files);
  });
});

describe("the program itself accepts", () => {
  test("the configuration of Prometheus, and the alerts", { skip: missing("promtool", "--version") }, () => {
    run("promtool", "check", "config", path.join(root, "deploy/prometheus/prometheus.yml"));
  });

  test("haproxy.cfg", { skip: missing("haproxy", "-v") }, () => {
    run("haproxy", "-c", "-f", path.join(root, "deploy/haproxy.cfg"));
  });

  test("nginx.conf, but not beside a site that gets all requests", {
    skip: missing("nginx", "-v"),
  }, () => {
    const folder = newFolder();
    // The check opens the ports of the configuration, and port 80 needs privileges.
    const socket = `listen unix:${folder}/socket default_server;`;
    const sites = textOf("deploy/nginx.conf").replace("listen 80 default_server;", socket);
    run("nginx", "-t", ...nginxArguments(folder, sites));
    const other = nginxArguments(newFolder(), `${sites} server { ${socket} }`);
    assert.throws(() => run("nginx", "-t", ...other), /duplicate default server/);
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
      "grafana",
      "node-a",
      "node-b",
      "postgres",
      "prometheus",
    ]);
  });
});

test("compares failing chat requests with all chat requests in the alert", {
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
      runbook: "docs/operating/alerts.md#inkwellservererrors",
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

test("tells of each event that dies, also after others were sent again or deleted", {
  skip: missing("promtool", "--version"),
}, () => {
  const alert = {
    exp_labels: { severity: "critical", endpoint: "billing" },
    exp_annotations: {
      summary: "Events for billing were tried for three days, and are sent no more",
      runbook: "docs/operating/alerts.md#inkwelleventsdead",
    },
  };
  const file = path.join(newFolder(), "test.yml");
  // Dead events in each minute.
  const tests = [
    { values: "0x10 3x20", exp_alerts: [alert] },
    { values: "7x10 0x10 1x10", exp_alerts: [alert] },
    { values: "7x10 6x10 7x10", exp_alerts: [alert] },
    { values: "7x10 0x20", exp_alerts: [] },
    { values: "7x10 6x20", exp_alerts: [] },
    { values: "7x30", exp_alerts: [] },
  ].map(({ values, exp_alerts }) => ({
    interval: "1m",
    // Each node reports those of all.
    input_series: ["a", "b"].map((instance) => ({
      series: `inkwell_events_dead{endpoint="billing",instance="${instance}"}`,
      values,
    })),
    alert_rule_test: [{ eval_time: "30m", alertname: "InkwellEventsDead", exp_alerts }],
  }));
  const rule_files = [path.join(root, "deploy/prometheus/alerts.yml")];
  writeFileSync(file, stringify({ rule_files, evaluation_interval: "1m", tests }));
  run("promtool", "test", "rules", file);
});

test("tells of an audit older than two days, if one was ever recorded", {
  skip: missing("promtool", "--version"),
}, () => {
  const alert = {
    exp_labels: { severity: "warning" },
    exp_annotations: {
      summary: "The ledger was last audited 2d 1h 0m 0s ago",
      runbook: "docs/operating/alerts.md#inkwellauditold",
    },
  };
  const file = path.join(newFolder(), "test.yml");
  const none = Array.from({ length: 60 }, () => "NaN").join(" ");
  // The audit of the first hour, as two nodes report it. One of them has just started.
  const tests = [
    { values: "3600x60", eval_time: "50h", exp_alerts: [alert] },
    { values: "3600x60", eval_time: "49h", exp_alerts: [] },
    { values: none, eval_time: "50h", exp_alerts: [] },
  ].map(({ values, eval_time, exp_alerts }) => ({
    interval: "1h",
    input_series: [
      { series: 'inkwell_audit_timestamp_seconds{instance="a"}', values },
      { series: 'inkwell_audit_timestamp_seconds{instance="b"}', values: none },
    ],
    alert_rule_test: [{ eval_time, alertname: "InkwellAuditOld", exp_alerts }],
  }));
  const rule_files = [path.join(root, "deploy/prometheus/alerts.yml")];
  writeFileSync(file, stringify({ rule_files, evaluation_interval: "1h", tests }));
  run("promtool", "test", "rules", file);
});

test("mentions every file of deploy/ in docs/operating", () => {
  const documented = globSync("docs/operating/*.md", { cwd: root }).map(textOf).join("\n");
  for (const file of globSync("deploy/**/*.*", { cwd: root }).concat("deploy/Dockerfile")) {
    assert.ok(documented.includes(file), `docs/operating mentions ${file}`);
  }
});

/** Fails with what it said, unless its exit code is 0. */
function run(program: string, ...args: string[]): void {
  execFileSync(program, args, { stdio: "pipe" });
}
