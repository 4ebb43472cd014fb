/**
 * Prometheus, balancers and the probes of Kubernetes reach the listeners as deploy/ configures
 * them.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { BlockList, connect, isIPv6 } from "node:net";
import path from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { parse, parseAllDocuments } from "yaml";
import { operatorNames } from "../../src/config/operator.ts";
import { instruction, missing, newFolder, textOf } from "../fixtures/deploy.ts";
import { assertKnown, configOfNode, configWith, imageEnvironment } from "../fixtures/deploy-settings.ts";
import { type Fields, fieldsOf, startOperator } from "../fixtures/operator.ts";
import { exchange, parseAnswer, readAll } from "../fixtures/raw-http.ts";
import { startService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";
import { listOf, valuesUnder } from "../fixtures/yaml-values.ts";

/** The parts of kubernetes.yaml. */
function readKubernetes() {
  const documents = parseAllDocuments(textOf("deploy/kubernetes.yaml"));
  for (const { errors } of documents) assert.deepEqual(errors, []);
  const [map = {}, deployment = {}, service = {}, policy = {}, cronJob = {}] = documents.map((each) =>
    fieldsOf(each.toJS()),
  );
  const template = fieldsOf(fieldsOf(deployment.spec).template);
  const pod = fieldsOf(template.spec);
  const [container = {}] = listOf(pod.containers).map(fieldsOf);
  const env = environmentOf(container);
  const probes = ["startupProbe", "livenessProbe", "readinessProbe"].map((name) => {
    const { path: target, port } = fieldsOf(fieldsOf(container[name]).httpGet);
    return [name, { path: String(target), port }] as const;
  });
  return {
    deployment,
    service,
    policy,
    cronJob,
    template,
    pod,
    container,
    probes: new Map(probes),
    variables: env.map(([name]) => name),
    config: configWith(
      { ...imageEnvironment(), ...Object.fromEntries(env) },
      String(fieldsOf(map.data)["inkwell.yaml"]),
    ),
    map,
  };
}

function environmentOf({ env }: Fields): [string, string][] {
  return listOf(env)
    .map(fieldsOf)
    .map(({ name, value }) => [String(name), String(value ?? secretsOfPod[`${name}`])]);
}

const secretsOfPod: Record<string, string> = {
  INKWELL_DATABASE: "postgres://inkwell:secret@postgres:5432/inkwell",
  INKWELL_OPERATOR_TOKEN: "a-token-of-the-operator",
};

const kubernetes = readKubernetes();

describe("in Kubernetes", () => {
  const { pod, container, service, template, config } = kubernetes;

  test("has known settings, no variables of Services, and time to stop", () => {
    assertKnown(kubernetes.variables);
    assert.equal(pod.enableServiceLinks, false);
    const graceMs = Number(pod.terminationGracePeriodSeconds) * 1000;
    assert.ok(graceMs > config.limits.unreadyMs + config.limits.drainMs + 10_000);
    const { periodSeconds, failureThreshold } = fieldsOf(container.readinessProbe);
    assert.ok(config.limits.unreadyMs > Number(periodSeconds) * Number(failureThreshold) * 1000);
  });

  test("runs as the user of the image, with its folders", () => {
    const { runAsUser, runAsGroup, fsGroup } = fieldsOf(pod.securityContext);
    assert.deepEqual(
      [`${runAsUser}:${runAsGroup}`, `${fsGroup}`],
      [instruction("USER").at(-1)?.[0], "10001"],
    );
    const mounts = listOf(container.volumeMounts).map(fieldsOf);
    assert.deepEqual(
      mounts.map(({ mountPath }) => mountPath),
      [config.dataDir, "/tmp", instruction("WORKDIR").at(-1)?.[0]],
    );
    const volumes = listOf(pod.volumes).map(fieldsOf);
    assert.deepEqual(
      mounts.map(({ name }) => name),
      volumes.map(({ name }) => name),
    );
    const { name } = fieldsOf(kubernetes.map.metadata);
    assert.deepEqual(volumes.at(-1), { name: "configuration", configMap: { name } });
    assert.equal(imageEnvironment().INKWELL_CONFIG, `${mounts.at(-1)?.mountPath}/inkwell.yaml`);
  });

  test("writes only to its volumes, and gains no rights", () => {
    assert.deepEqual(container.securityContext, {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      readOnlyRootFilesystem: true,
    });
    const readOnly = listOf(container.volumeMounts).map((mount) => fieldsOf(mount).readOnly ?? false);
    assert.deepEqual(readOnly, [false, false, true]);
    assert.equal(pod.automountServiceAccountToken, false);
  });

  test("lets everybody reach the API, monitoring the operator's listener, and nobody else anything", () => {
    const { kind, spec } = kubernetes.policy;
    assert.equal(kind, "NetworkPolicy");
    const { podSelector, policyTypes, ingress } = fieldsOf(spec);
    const [audited] = listOf(valuesUnder("labels", fieldsOf(kubernetes.cronJob.spec))).map(fieldsOf);
    const labels = [fieldsOf(fieldsOf(template.metadata).labels), audited];
    const key = "app.kubernetes.io/name";
    const values = labels.map((each) => each?.[key]);
    assert.deepEqual(podSelector, { matchExpressions: [{ key, operator: "In", values }] });
    assert.deepEqual(policyTypes, ["Ingress", "Egress"]);
    const namespace = { "kubernetes.io/metadata.name": "monitoring" };
    assert.deepEqual(ingress, [
      { ports: [{ port: "http" }] },
      { ports: [{ port: "operator" }], from: [{ namespaceSelector: { matchLabels: namespace } }] },
    ]);
    const names = listOf(container.ports).map((port) => fieldsOf(port).name);
    for (const port of valuesUnder("port", ingress)) assert.ok(names.includes(port), `${port}`);
  });

  test("audits the same ledger each night, with the rights of the service", () => {
    const { kind, spec } = kubernetes.cronJob;
    assert.equal(kind, "CronJob");
    const job = fieldsOf(fieldsOf(fieldsOf(spec).jobTemplate).spec);
    const audit = fieldsOf(fieldsOf(job.template).spec);
    const [auditor = {}] = listOf(audit.containers).map(fieldsOf);
    assert.deepEqual(auditor.args, ["audit", "--record"]);
    assert.deepEqual([audit.restartPolicy, job.backoffLimit], ["Never", 0]);
    for (const name of ["securityContext", "enableServiceLinks", "automountServiceAccountToken"])
      assert.deepEqual(audit[name], pod[name], name);
    for (const name of ["image", "securityContext"]) assert.deepEqual(auditor[name], container[name], name);
    const { database } = configWith({ ...imageEnvironment(), ...Object.fromEntries(environmentOf(auditor)) });
    assert.deepEqual(database, config.database);
    const configuration = (mounts: unknown) =>
      listOf(mounts).find((mount) => fieldsOf(mount).name === "configuration");
    assert.deepEqual(auditor.volumeMounts, [configuration(container.volumeMounts)]);
    assert.deepEqual(audit.volumes, [configuration(pod.volumes)]);
    const { selector } = fieldsOf(service.spec);
    assert.notDeepEqual(fieldsOf(fieldsOf(job.template).metadata).labels, selector, "gets no requests");
  });

  test("reaches names, its database, and public addresses with TLS, and no private address", () => {
    const rules = listOf(fieldsOf(kubernetes.policy.spec).egress).map(fieldsOf);
    const ports = rules.map((rule) => valuesUnder("port", rule.ports).map(Number));
    const { database } = config;
    assert.equal(database.kind, "postgres");
    assert.deepEqual(ports, [[53, 53], [Number(new URL(`${secretsOfPod.INKWELL_DATABASE}`).port)], [443]]);
    for (const { to } of rules) assert.ok(listOf(to).length > 0, "a rule without targets allows all");
    const blocks = valuesUnder("ipBlock", rules).map(fieldsOf);
    const reachable = new BlockList();
    const excluded = new BlockList();
    const add = (list: BlockList, network: unknown) => {
      const [address = "", prefix] = String(network).split("/");
      list.addSubnet(address, Number(prefix), isIPv6(address) ? "ipv6" : "ipv4");
    };
    for (const { cidr, except } of blocks) {
      add(reachable, cidr);
      for (const each of listOf(except)) add(excluded, each);
    }
    const reaches = (address: string) => {
      const family = isIPv6(address) ? "ipv6" : "ipv4";
      return reachable.check(address, family) && !excluded.check(address, family);
    };
    for (const address of ["93.184.216.34", "2606:2800:220:1::1"]) assert.ok(reaches(address), address);
    for (const address of [
      "10.244.1.7",
      "172.20.0.1",
      "192.168.1.1",
      "100.100.100.200",
      "127.0.0.1",
      "169.254.169.254",
      "fd00:ec2::254",
      "fe80::1",
    ]) {
      assert.ok(!reaches(address), address);
    }
  });

  test("checks models and the database only for readiness, on the ports of the image", () => {
    const ports = listOf(container.ports).map(fieldsOf);
    assert.deepEqual(ports, [
      { name: "http", containerPort: config.listen.port },
      { name: "operator", containerPort: config.operator.port },
    ]);
    assert.deepEqual(Object.fromEntries(kubernetes.probes), {
      startupProbe: { path: "/healthz", port: "operator" },
      livenessProbe: { path: "/healthz", port: "operator" },
      readinessProbe: { path: "/readyz", port: "operator" },
    });
    const { labels, annotations } = fieldsOf(template.metadata);
    assert.equal(fieldsOf(annotations)["prometheus.io/port"], `${config.operator.port}`);
    assert.deepEqual(fieldsOf(fieldsOf(kubernetes.deployment.spec).selector).matchLabels, labels);
    const { selector, ports: served } = fieldsOf(service.spec);
    assert.deepEqual(selector, labels);
    assert.deepEqual(served, [{ name: "http", port: 8080, targetPort: "http" }]);
  });
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

  test("the probes of Kubernetes, which send the address of the pod", async () => {
    await using service = await startService();
    await using operator = await startOperator(service, operatorNames(kubernetes.config.operator));
    for (const host of ["10.244.1.7:8081", "[fd00:10:244::7]:8081"]) {
      for (const [name, { path: target }] of kubernetes.probes) {
        const request = `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: kube-probe/1.33\r\nConnection: close\r\n\r\n`;
        const { status, body } = parseAnswer(await exchange(Number(new URL(operator.url).port), request));
        assert.equal(status, 200, `${name}: ${body}`);
      }
    }
  });

  test("the health check of the image, which fails without a service", async () => {
    await using service = await startService();
    await using operator = await startOperator(service);
    const dockerfile = textOf("deploy/Dockerfile").replaceAll("\\\n", " ");
    const [, check = "[]"] = /^HEALTHCHECK.*CMD (\[.*\])$/m.exec(dockerfile) ?? [];
    const [program, ...args] = listOf(JSON.parse(check)).map(String);
    assert.equal(program, "node");
    const run = promisify(execFile);
    const { port } = new URL(operator.url);
    await run(process.execPath, args, { env: { INKWELL_OPERATOR_PORT: port } });
    // No service listens on port 1.
    await assert.rejects(run(process.execPath, args, { env: { INKWELL_OPERATOR_PORT: "1" } }));
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
  const asking = connect(socket);
  try {
    await once(asking, "connect");
  } catch (error) {
    if (["ENOENT", "ECONNREFUSED"].includes(String(Object(error).code))) return [];
    throw error;
  }
  asking.end("show stat nodes 4 -1\n");
  const [head = "", ...rows] = (await readAll(asking)).replace("# ", "").split("\n");
  const column = head.split(",").indexOf("check_status");
  return column === -1
    ? []
    : rows.filter((row) => row !== "").map((row) => (row.split(",")[column] ?? "").replace("* ", ""));
}
