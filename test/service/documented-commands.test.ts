/**
 * Commands and configuration in README.md and docs/ work as they are written, in the order in
 * which they are written.
 */
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { once } from "node:events";
import { globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { promisify } from "node:util";
import { parse, stringify } from "yaml";
import { services } from "../../src/cli/services.ts";
import { loadConfig } from "../../src/config/load.ts";
import { runCli } from "../fixtures/cli-host.ts";
import { noPostgres, start } from "../fixtures/postgres.ts";
import { configure, environment, newFolder, startProgram } from "../fixtures/program.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");

interface Block {
  document: string;
  language: string;
  text: string;
}

const documents = ["README.md", ...globSync("docs/**/*.md", { cwd: root }).toSorted()];
const blocks = documents.flatMap((document): Block[] => {
  const text = readFileSync(path.join(root, document), "utf8");
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language = "", body = ""]) => {
    return { document, language, text: body };
  });
});

/** Commands that no test runs, by their beginning, each with the reason. */
const notRun: [beginning: string, reason: string][] = [
  ["git clone", "continuous integration installs and tests a clone"],
  ["npx --yes ./inkwell", "test/release/package.test.ts installs the package"],
  ["npm run gpu", "downloads 540 MB"],
  ["npm run clients", "installs programs of others from package registries"],
  ["docker", "needs Docker"],
  ["useradd", "needs systemd"],
  ["systemctl", "needs systemd"],
  [
    "mkdir /var/lib/inkwell-seals-before-restore",
    "needs systemd; test/unit/cli-audit.test.ts does it by hand",
  ],
  ["systemd-run", "needs systemd; test/unit/deploy.test.ts compares it with the unit"],
  ["for node in", "needs Docker; test/service/rolling.test.ts runs its loop"],
  ["./inkwell events", "needs a receiver; test/release/events.test.ts has the events of a whole program"],
  ["./inkwell person export", "needs a person; test/unit/cli-person.test.ts exports one"],
  ["pg_dump", "the test server has no client programs"],
];

const commands = blocks.filter(
  ({ language, text }) => language === "sh" && !notRun.some(([beginning]) => text.startsWith(beginning)),
);

function hasPrograms(...programs: string[]): boolean {
  return programs.every((program) => spawnSync("sh", ["-c", `command -v ${program}`]).status === 0);
}

test("every command is run or has a reason", () => {
  assert.ok(blocks.length > 15);
  for (const [beginning] of notRun) {
    assert.ok(
      blocks.some(({ language, text }) => language === "sh" && text.startsWith(beginning)),
      `no document has a command "${beginning}"`,
    );
  }
});

test("the commands succeed", {
  skip: hasPrograms("bash", "curl") ? false : "needs bash and curl",
}, async () => {
  await using folder = await newFolder();
  // Links of invitations need the URL.
  const more = `portal: { port: 0, url: https://ai.example.edu }
plans:
  starter: { base: { credits: 100000, every: P1D }, overage: { credits: 20000, every: P1M } }
  student: { base: { credits: 1000, every: P1D }, overage: { credits: 0, every: P1M } }
  team: { base: { credits: 100000, every: P1M }, overage: { credits: 0, every: P1M } }
`;
  configure(folder.path, { more });
  await using program = startProgram(folder.path);
  const { url, operatorUrl, key } = await program.up();
  assert.ok(key !== null);
  mkdirSync(path.join(folder.path, "backups"));
  const socket = path.join(folder.path, "commands");
  await using _commands = await listenForCommands(socket);
  // One process of curl instead of one of Node for each command.
  const send = `curl --fail-with-body --silent --show-error --unix-socket "${socket}" --data-binary @- http://inkwell/`;
  const inkwell = `inkwell() { { printf '%s\\0' $# "$@"; env -0; } | ${send}; }`;
  for (const { document, text: command } of commands) {
    const here = command
      .replaceAll("http://127.0.0.1:8080", url)
      .replaceAll("http://127.0.0.1:8081", operatorUrl)
      .replaceAll("ink_...", key)
      .replaceAll(/\.\/inkwell(?=\s)/g, "inkwell")
      .replaceAll("/backups/", `${folder.path}/backups/`)
      .replaceAll("2027-01-15", "$(date +%F)")
      .replaceAll("--models small ", "--models smollm2-135m-instruct ")
      .replaceAll("curl ", "curl --fail-with-body --silent --show-error ");
    const script = `set -euo pipefail\n${inkwell}\n${here}`;
    const { PATH = "", HOME = "" } = environment(folder.path);
    const env = { PATH, HOME };
    await assert.doesNotReject(
      run("bash", ["-c", script], { cwd: folder.path, env }),
      `${document}:\n${command}`,
    );
  }
  for (const { document, text: program } of blocks.filter(({ language }) => language === "ts")) {
    const here = program.replace("http://127.0.0.1:8080", url).replace("ink_...", key);
    const script = `${here}\nconst { data } = await client.models.list();\nif (data.length === 0) throw new Error("no model");`;
    const child = run(process.execPath, ["--input-type=module-typescript", "-e", script], { cwd: root });
    await assert.doesNotReject(child, `${document}:\n${program}`);
  }
});

/**
 * Runs commands in this process: a request has the number of arguments, these and the environment.
 */
async function listenForCommands(socket: string): Promise<AsyncDisposable> {
  const server = createServer(async (request, response) => {
    const [count, ...rest] = (await text(request)).split("\0");
    const args = rest.slice(0, Number(count));
    const env = rest.slice(args.length).map((entry) => [entry.split("=")[0], entry.replace(/^[^=]*=/, "")]);
    const ran = await runCli(args, { cwd: path.dirname(socket), env: Object.fromEntries(env), services });
    response.writeHead(ran.code === 0 ? 200 : 400).end(ran.code === 0 ? ran.stdout : ran.stderr);
  });
  await once(server.listen(socket), "listening");
  return {
    async [Symbol.asyncDispose]() {
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

test("the configuration is accepted", async () => {
  const found = blocks.filter(({ language }) => language === "yaml");
  assert.ok(found.length >= 5);
  for (const { document, text } of found) {
    await using folder = await newFolder();
    const env = {
      BIG_KEY: "secret",
      INKWELL_DB_PASSWORD: "secret",
      BILLING_SECRET: `whsec_${btoa("x".repeat(32))}`,
    };
    writeFileSync(path.join(folder.path, "inkwell.yaml"), stringify(completed(text)));
    assert.doesNotThrow(() => loadConfig({ cwd: folder.path, env }), `${document}:\n${text}`);
  }
});

/** Adds what a model needs if an example shows only some of its settings. */
function completed(text: string): object {
  const isModel = text.startsWith("    ");
  const example: { models?: Record<string, object> } = isModel
    ? { models: { "my-model": parse(text) } }
    : parse(text);
  const required = { engine: "llama", source: "./my-model.gguf", price: { prompt: 1, completion: 1 } };
  for (const [id, model] of Object.entries(example.models ?? {})) {
    if (!("engine" in model)) example.models = { ...example.models, [id]: { ...required, ...model } };
  }
  return example;
}

test("the JSON is JSON", () => {
  for (const { language, text } of blocks) if (language === "json") JSON.parse(text);
});

test("the SQL runs on PostgreSQL", { skip: noPostgres ?? false }, async () => {
  const server = await start();
  try {
    for (const { document, text } of blocks.filter(({ language }) => language === "sql")) {
      for (const statement of text.split(";").map((each) => each.trim())) {
        if (statement === "") continue;
        const here = statement.replace("PID", "0");
        await assert.doesNotReject(server.sql(here), `${document}: ${statement}`);
      }
    }
  } finally {
    await server.kill();
  }
});
