/** The three ways of a command: to a service elsewhere, to that of its folder, and to none. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { createServer, type Server } from "node:net";
import { tmpdir, userInfo } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { services as realServices } from "../../src/cli/services.ts";
import { databaseText } from "../../src/config/database.ts";
import { loadConfig } from "../../src/config/load.ts";
import { writeOperatorAddress } from "../../src/operator-address.ts";
import { selfSigned } from "../fixtures/certificate.ts";
import { type Ran, type RunOptions, runCli } from "../fixtures/cli-host.ts";
import { refused } from "../fixtures/cli-ledger.ts";
import { fieldsOf, listOf, operatorToken, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { startService, type TestService } from "../fixtures/service.ts";

let service: TestService;
let operator: TestOperator;
const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-ways-"));
const entry = fileURLToPath(new URL("../../src/cli/inkwell.ts", import.meta.url));
const nothingOpened = { openStore: () => assert.fail("no database is opened") };

before(async () => {
  service = await startService();
  operator = await startOperator(service);
  writeFileSync(path.join(cwd, "inkwell.yaml"), `data: .\noperator: { token: ${operatorToken} }\n`);
});
after(async () => {
  await operator[Symbol.asyncDispose]();
  await service[Symbol.asyncDispose]();
  rmSync(cwd, { recursive: true });
});

function inkwell(argv: string, options: Partial<RunOptions> = {}) {
  return runCli(argv.split(" "), { cwd, services: nothingOpened, ...options });
}

async function documentOf(argv: string, options: Partial<RunOptions> = {}): Promise<unknown> {
  const { code, stdout, stderr } = await inkwell(`--json ${argv}`, options);
  assert.equal(code, 0, stderr + stdout);
  return JSON.parse(stdout);
}

/** Writes the address as a service of this folder does. */
function tell(url: string, pid = process.pid): () => void {
  const database = databaseText(loadConfig({ cwd, env: {} }).database);
  return writeOperatorAddress(cwd, { url, api: "http://127.0.0.1:1", pid, database });
}

async function lastEntry(account: string) {
  const { body } = await operator.get(`/admin/accounts/${account}/journal?order=newest&limit=1`);
  return listOf(body.data)[0];
}

function refusedWithCode(ran: Ran, text: RegExp): void {
  const { code, message } = JSON.parse(ran.stdout).error;
  assert.deepEqual([ran.code, code], [1, "service_unavailable"], message);
  assert.match(message, text);
}

function portOf(server: Server): number {
  const bound = server.address();
  assert.ok(bound !== null && typeof bound === "object");
  return bound.port;
}

let names = 0;
const newName = () => `way-${++names}`;

describe("to a service elsewhere", () => {
  const other = mkdtempSync(path.join(tmpdir(), "inkwell-elsewhere-"));
  after(() => rmSync(other, { recursive: true }));
  // Nobody may read it.
  before(() => writeFileSync(path.join(other, "inkwell.yaml"), "this: is: no: yaml"));
  const elsewhere = (argv: string, key: string, server = operator.url) =>
    inkwell(argv, { cwd: other, env: { INKWELL_SERVER: server, INKWELL_OPERATOR_KEY: key } });

  async function keyWith(role: string): Promise<string> {
    const made = { operation_id: newName(), name: role, role };
    return String((await operator.post("/admin/operator-keys", made)).body.key);
  }

  test("somebody with the role support works, and is refused what it forbids, in the API's words", async () => {
    const key = await keyWith("support");
    const account = newName();
    await operator.post("/admin/accounts", { id: account, plan: "test" });
    const listed = await elsewhere("account list", key);
    assert.match(listed.stdout, new RegExp(`^${account} +test`, "m"));
    const made = await elsewhere(`key create ${account}`, key);
    assert.match(made.stdout, /^ink_[0-9A-Za-z]{40}\n$/);
    assert.match(String((await lastEntry(account))?.by), /^operator_key:opkey_/);
    refused(
      await elsewhere(`credits add ${account} 5 --payment p`, key),
      /^This needs the role operator, and yours is support\. Nothing has changed\.\n$/,
    );
    const asJson = await elsewhere(`--json account close ${account} --yes`, key);
    assert.deepEqual(JSON.parse(asJson.stdout).error, {
      code: "refused",
      message: "This needs the role operator, and yours is support. Nothing has changed.",
    });
  });

  test("the option goes before the variable, and a wrong key is refused", async () => {
    const ran = await elsewhere(
      `--server ${operator.url}/ account list`,
      "iko_wrong",
      "https://unknown.example",
    );
    refused(ran, /^This operator key is unknown, has ended or has expired\.\n$/);
    refused(await elsewhere("account list", ""), /needs an operator key: set INKWELL_OPERATOR_KEY/);
  });

  test("needs https, or this machine", async () => {
    for (const url of ["http://ops.example", "http://127.0.0.1.example", "ops.example", "ftp://localhost"])
      refused(
        await elsewhere("account list", "iko_x", url),
        /must be the URL of an operator listener with https/,
      );
  });

  test("a URL with a user, a query or a fragment is refused, and its password is not shown", async () => {
    for (const url of [
      "http://u:s3cret@127.0.0.1:1",
      "http://u:s3cret@ops.example",
      "https://ops.example/?token=s3cret",
      "https://ops.example?",
      "https://ops.example/#s3cret",
    ]) {
      const ran = await elsewhere("account list", "iko_x", url);
      refused(ran, /^--server .*, without a user, a query and a fragment\.\n$/);
      assert.ok(!ran.stderr.includes("s3cret"), ran.stderr);
    }
  });

  test("a key with characters that no key has is refused", async () => {
    for (const key of ["iko_abcdefghijklmnop\r", "iko_abc€", "iko_abc def"])
      refused(
        await elsewhere("account list", key),
        /^INKWELL_OPERATOR_KEY has characters that no key has, such as a space or a line end\.\n$/,
      );
  });

  test("what is not Inkwell is no defect of Inkwell", async () => {
    for (const body of ["{}", "null", "[]", "<html>"]) {
      const foreign = createHttpServer((_, response) => response.end(body)).listen(0, "127.0.0.1");
      await once(foreign, "listening");
      const url = `http://127.0.0.1:${portOf(foreign)}`;
      for (const command of ["account list", "account show ada", "balance ada", "key create ada", "usage"])
        refused(await elsewhere(command, "iko_x", url), /^The answer is not that of an operator listener/);
      foreign.closeAllConnections();
      foreign.close();
    }
  });

  test("nothing was sent to a service without a valid certificate or without TLS", async () => {
    const plain = createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    for (const listener of [createHttpsServer(selfSigned("localhost")), plain]) {
      listener.listen(0, "127.0.0.1");
      await once(listener, "listening");
      const url = `https://localhost:${portOf(listener)}`;
      const ran = await elsewhere("--json key create ada", "iko_x", url);
      refusedWithCode(ran, /^No service responds at https:\/\/localhost:\d+ \([A-Z_]+\)\.$/);
      listener.close();
    }
  });

  test("a connection with TLS that breaks may have carried the request", async () => {
    const authority = selfSigned("localhost");
    const listener = createHttpsServer(authority, ({ socket }) => void socket.destroy());
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    const file = path.join(other, "authority.pem");
    writeFileSync(file, authority.cert);
    const ran = await promisify(execFile)(process.execPath, [entry, "--json", "key", "create", "ada"], {
      cwd: other,
      env: {
        ...process.env,
        NODE_EXTRA_CA_CERTS: file,
        INKWELL_SERVER: `https://localhost:${portOf(listener)}`,
        INKWELL_OPERATOR_KEY: "iko_x",
      },
    }).catch((error: unknown) => error);
    assert.match(String(Object(ran).stdout), /ECONNRESET.*may have taken effect/);
    listener.close();
  });

  test("commands that work in a folder are refused", async () => {
    for (const command of ["config check", "backup x.db", "audit", "serve"])
      refused(
        await elsewhere(command, "iko_x"),
        /works in the folder of a service, and not on another machine/,
      );
  });

  test("nobody who listens is no reason to work on a ledger here", async () => {
    const ran = await elsewhere("--json account list", "iko_x", "http://127.0.0.1:1");
    assert.deepEqual([ran.code, JSON.parse(ran.stdout).error.code], [1, "service_unavailable"]);
  });
});

describe("to a service that a test plays", () => {
  /** Answers with these statuses in turn, each with `retry-after`, and then with an empty list. */
  async function playing(statuses: readonly number[], retryAfter: string) {
    const seen: string[] = [];
    const server = createHttpServer((request, response) => {
      const status = statuses[seen.length] ?? 200;
      seen.push(request.url ?? "");
      response.writeHead(status, { "retry-after": retryAfter, "x-request-id": "req_1" });
      const configuration = { current: true, added: [], changed: [], retired: [], plans: [] };
      const code = status === 429 ? "rate_limit_exceeded" : "service_unavailable";
      const refusal = { error: { code, message: "Too many reads.", param: null } };
      response.end(JSON.stringify(status === 200 ? { data: [], next: null, configuration } : refusal));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const bound = server.address();
    assert.ok(bound !== null && typeof bound === "object");
    return {
      seen,
      url: `http://127.0.0.1:${bound.port}`,
      [Symbol.asyncDispose]: () => {
        server.closeAllConnections();
        return new Promise<void>((resolve) => server.close(() => resolve()));
      },
    };
  }
  const asking = (url: string, argv: string) =>
    inkwell(argv, { env: { INKWELL_SERVER: url, INKWELL_OPERATOR_KEY: "iko_x" } });

  test("a request that a rate refuses is repeated after the time that the service names", async () => {
    await using played = await playing([429, 429], "0");
    const beganMs = performance.now();
    const ran = await asking(played.url, "account list");
    assert.deepEqual([ran.code, played.seen.length], [0, 3], ran.stderr);
    assert.ok(performance.now() - beganMs >= 1990, "a second for each, at least");
  });

  test("it is not if the time is too long or not named", async () => {
    for (const retryAfter of ["181", "soon"]) {
      await using played = await playing([429], retryAfter);
      refused(await asking(played.url, "account list"), /^Too many reads\.\n$/);
      assert.equal(played.seen.length, 1);
    }
  });

  test("an import ends with the code of a refusal that concerns no row", async () => {
    await using played = await playing([503], "1");
    writeFileSync(path.join(cwd, "accounts.csv"), "account,plan\nada,test\nbob,test\n");
    const ran = await asking(played.url, "--json account import accounts.csv");
    refusedWithCode(ran, /^Too many reads\.$/);
    assert.equal(played.seen.length, 1);
  });

  test("plans are read once", async () => {
    await using played = await playing([], "");
    assert.equal((await asking(played.url, "plans list")).code, 0);
    assert.deepEqual(played.seen, ["/admin/plans?limit=500"]);
  });

  test("a proxy of the environment sees nothing of a service on this machine", async () => {
    await using proxy = await playing([], "");
    await using played = await playing([], "");
    const remove = tell(played.url);
    const run = async (env: Record<string, string>) =>
      await promisify(execFile)(process.execPath, [entry, "account", "list"], {
        cwd,
        env: { ...process.env, NODE_USE_ENV_PROXY: "1", HTTP_PROXY: proxy.url, NO_PROXY: "", ...env },
      });
    await run({});
    await run({ INKWELL_SERVER: played.url, INKWELL_OPERATOR_KEY: "iko_x" });
    remove();
    assert.deepEqual([proxy.seen, played.seen.length], [[], 2]);
  });
});

describe("to the service of the data folder", () => {
  test("changes name the user of the command, and the file is the user's alone", async () => {
    const remove = tell(operator.url);
    assert.equal(statSync(path.join(cwd, "operator-address")).mode & 0o777, 0o600);
    const account = newName();
    assert.equal((await inkwell(`account create ${account} --plan test`)).code, 0);
    const { body } = await operator.get(`/admin/accounts/${account}/journal`);
    assert.equal(listOf(body.data)[0]?.by, `command_line:${userInfo().username}`);
    remove();
    assert.ok(!existsSync(path.join(cwd, "operator-address")));
  });

  test("only the operator token may name a user", async () => {
    const role = { operation_id: newName(), name: "owner", role: "owner" };
    const { key } = (await operator.post("/admin/operator-keys", role)).body;
    const headers = { "x-inkwell-user": "root", authorization: `Bearer ${key}` };
    const answer = await operator.ask("GET", "/admin/accounts", { headers });
    assert.deepEqual([answer.status, fieldsOf(answer.body.error).code], [403, "not_permitted"]);
    const wrong = await operator.ask("GET", "/admin/accounts", { headers: { "x-inkwell-user": "%0a" } });
    assert.deepEqual([wrong.status, fieldsOf(wrong.body.error).code], [400, "invalid_value"]);
  });

  test("a list follows its pages", async () => {
    const account = newName();
    await operator.post("/admin/accounts", { id: account, plan: "test" });
    for (let n = 0; n < 3; n += 1) {
      await operator.post(`/admin/accounts/${account}/topups`, { credits: 1, payment_id: `${account}-${n}` });
    }
    const remove = tell(operator.url);
    const rows = await documentOf(`account journal ${account} --limit 2`);
    assert.deepEqual([listOf(rows).length, listOf(rows)[0]?.kind], [2, "payment"]);
    remove();
  });

  test("a service that does not answer in time is never replaced by the ledger", async () => {
    const silent = createServer(() => {}).listen(0, "127.0.0.1");
    await new Promise((resolve) => silent.once("listening", resolve));
    const bound = silent.address();
    assert.ok(bound !== null && typeof bound === "object");
    const remove = tell(`http://127.0.0.1:${bound.port}`);
    const ran = await inkwell("--json key create ada", { silenceMs: 50 });
    const { code, message } = JSON.parse(ran.stdout).error;
    assert.deepEqual([ran.code, code], [1, "service_unavailable"]);
    assert.match(message, /no answer within 0\.05 s.*send it again with --id create-[0-9a-f-]{36}/s);
    remove();
    silent.close();
  });
});

describe("without a service", () => {
  const real = { services: realServices };

  for (const [reason, url, pid] of [
    ["the process of the file is dead", () => operator.url, 2 ** 22 + 1],
    ["nobody listens there", () => "http://127.0.0.1:1", process.pid],
  ] as const) {
    test(`the ledger is opened if ${reason}`, async () => {
      const folder = mkdtempSync(path.join(tmpdir(), "inkwell-alone-"));
      writeFileSync(
        path.join(folder, "inkwell.yaml"),
        "data: .\noperator: { token: another-token-0123456789 }\n",
      );
      const database = databaseText(loadConfig({ cwd: folder, env: {} }).database);
      const options = { cwd: folder, ...real };
      writeOperatorAddress(folder, { url: url(), api: "http://127.0.0.1:1", pid, database });
      assert.equal((await inkwell("account create ada --plan starter", options)).code, 0);
      const [entry] = listOf(await documentOf("account journal ada --oldest", options));
      assert.equal(entry?.by, `command_line:${userInfo().username}`);
      rmSync(folder, { recursive: true });
    });
  }

  test("so it is if the service has another database, or the file could be another's", async () => {
    const folder = mkdtempSync(path.join(tmpdir(), "inkwell-other-"));
    writeFileSync(path.join(folder, "inkwell.yaml"), `data: .\noperator: { token: ${operatorToken} }\n`);
    const options = { cwd: folder, ...real };
    assert.equal((await inkwell("account create ada --plan starter", options)).code, 0);
    writeOperatorAddress(folder, {
      url: operator.url,
      api: service.url,
      pid: process.pid,
      database: "sqlite:/elsewhere.db",
    });
    assert.equal(listOf(await documentOf("account list", options)).length, 1);
    const database = databaseText(loadConfig({ cwd: folder, env: {} }).database);
    const file = path.join(folder, "operator-address");
    writeFileSync(file, JSON.stringify({ url: operator.url, pid: process.pid, database }), { mode: 0o644 });
    rmSync(file);
    writeFileSync(file, JSON.stringify({ url: operator.url, pid: process.pid, database }), { mode: 0o644 });
    assert.equal(listOf(await documentOf("account list", options)).length, 1);
    rmSync(folder, { recursive: true });
  });

  test("actions that need a service say so, and only account create makes a ledger", async () => {
    const folder = mkdtempSync(path.join(tmpdir(), "inkwell-none-"));
    const options = { cwd: folder, ...real };
    for (const command of ["account list", "plans apply", "person list"])
      refused(await inkwell(command, options), /^There is no ledger at/);
    assert.ok(!existsSync(path.join(folder, "data", "inkwell.db")));
    assert.equal((await inkwell("account create ada --plan starter", options)).code, 0);
    const ran = await inkwell("--json reload", options);
    assert.equal(ran.code, 1);
    const { code, message } = JSON.parse(ran.stdout).error;
    assert.equal(code, "service_unavailable");
    assert.match(message, /^No service runs here, and this needs one\. Start it with .*serve/);
    const answering = { url: operator.url, api: service.url, pid: process.pid };
    const config = loadConfig({ cwd: folder, env: {} });
    const database = databaseText(config.database);
    writeOperatorAddress(config.dataDir, { ...answering, database });
    refusedWithCode(await inkwell("--json reload", options), /^The operator token in .* cannot be read\./);
    writeOperatorAddress(config.dataDir, { ...answering, database: "sqlite:/elsewhere.db" });
    refusedWithCode(
      await inkwell("--json reload", options),
      new RegExp(
        `has the database sqlite:/elsewhere\\.db, and the configuration of this command has ${database}\\.`,
      ),
    );
    rmSync(folder, { recursive: true });
  });
});
