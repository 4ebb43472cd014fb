/**
 * The running service reloads its configuration: by SIGHUP, over HTTP and by the command line,
 * while answers run.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { ask, openStream } from "../fixtures/http-stream.ts";
import { type InnerProgram, inkwell, startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { isRunning, processEnded } from "../fixtures/processes.ts";
import { freePort, miniature, newFolder } from "../fixtures/program.ts";
import { isThorough } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const token = "operator-token-0123456789";
const env = { INKWELL_OPERATOR_TOKEN: token };

interface Settings {
  /** Lines below `models:`. */
  models: Record<string, string>;
  /** Lines below `plans:`. Default: `starter` with many credits. */
  plans?: Record<string, string>;
  /** Lines at the end. */
  rest?: string;
}

const starter = "{ base: { credits: 1000000, every: P1D }, overage: { credits: 0, every: P1D } }";

function yaml({ models, plans = { starter }, rest = "" }: Settings): string {
  const lines = (entries: Record<string, string>) =>
    Object.entries(entries).map(([name, value]) => `  ${name}: ${value}\n`);
  return `plans:\n${lines(plans).join("")}models:\n${lines(models).join("")}${rest}`;
}

function llama(price = "{ prompt: 10, completion: 30 }", more = ""): string {
  return `{ engine: llama, source: ${miniature}, context_window: 4096, threads: 1, gpu: "off", parallel: 2, defaults: { max_tokens: 3000 }, price: ${price}${more} }`;
}

function remote({ url }: Pick<Upstream, "url">, price = "{ prompt: 10, completion: 30 }", more = ""): string {
  return `{ engine: upstream, url: "${url}", model: m, defaults: { max_tokens: 100 }, price: ${price}${more} }`;
}

interface Reloadable extends AsyncDisposable {
  readonly folder: string;
  readonly program: InnerProgram;
  readonly url: string;
  readonly operatorUrl: string;
  readonly key: string;
  write(settings: Settings | string): void;
  /** Reloads over HTTP. */
  reload(): Promise<{ status: number; body: Fields }>;
  readiness(): Promise<Fields>;
  metric(name: string): Promise<number>;
}

/** The most log-probabilities make it slow: the test halts its engine long before its end. */
const long = { content: "An endless story, please.", logprobs: true, top_logprobs: 20, max_tokens: 300 };

type Fields = Record<string, unknown>;

async function start(settings: Settings): Promise<Reloadable> {
  const stack = new AsyncDisposableStack();
  const { path: folder } = stack.use(await newFolder());
  const file = path.join(folder, "inkwell.yaml");
  const write = (next: Settings | string) =>
    writeFileSync(file, typeof next === "string" ? next : yaml(next));
  write(settings);
  const program = stack.use(startInside(folder, { env }));
  const { url, operatorUrl, key } = await program.up();
  assert.ok(key !== null);
  const service: Reloadable = {
    folder,
    program,
    url,
    operatorUrl,
    key,
    write,
    async reload() {
      const headers = { authorization: `Bearer ${token}` };
      const response = await fetch(`${service.operatorUrl}/admin/reload`, { method: "POST", headers });
      const body: Fields = JSON.parse(await response.text());
      return { status: response.status, body };
    },
    async readiness() {
      const readiness: Fields = JSON.parse(await (await fetch(`${service.operatorUrl}/readyz`)).text());
      return readiness;
    },
    async metric(name) {
      const shown = await (await fetch(`${service.operatorUrl}/metrics`)).text();
      return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(shown)?.[1]);
    },
    async [Symbol.asyncDispose]() {
      await service.program.stop();
      assertSoundLedger(folder);
      await stack.disposeAsync();
    },
  };
  return service;
}

async function modelsOf({ url, key }: Reloadable): Promise<string[]> {
  const response = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  const { data }: { data: { id: string }[] } = JSON.parse(await response.text());
  return data.map(({ id }) => id);
}

/** The first answer of the upstream stops in its middle until the result is resolved. */
function pausedOnce(upstream: Upstream): PromiseWithResolvers<void> {
  const goOn = Promise.withResolvers<void>();
  upstream.play = async (call) => {
    await call.send(first, text("Hello"));
    if (upstream.calls.length === 1) await goOn.promise;
    await call.stream(text(" world"), finish(), usage(5, 2), done);
  };
  return goOn;
}

function receiptOf({ folder }: Reloadable, requestId: string) {
  const [row] = query(folder, "select * from charge where id = ?", requestId);
  assert.ok(row !== undefined, "there is a receipt");
  return row;
}

/** How many plans sections have been applied. */
function planSections({ folder }: Reloadable): unknown {
  return query(folder, "select count(*) as n from plan_file")[0]?.n;
}

const nothing = {
  models: { added: [], removed: [], changed: [] },
  prices: [],
  plans: { added: [], changed: [], retired: [], superseded: false },
  warnings: [],
  settings: [],
  needs_restart: [],
};

test("keeps the running configuration if the file is broken, and names file and line", async () => {
  await using upstream = await startUpstream();
  await using service = await start({ models: { small: remote(upstream) } });
  assert.equal((await service.readiness()).last_reload, null);
  assert.equal(await service.metric("inkwell_config_last_reload_successful"), 1);
  const loadedSeconds = await service.metric("inkwell_config_last_reload_success_timestamp_seconds");
  assert.ok(Math.abs(loadedSeconds - Date.now() / 1000) < 60, String(loadedSeconds));

  // The price, a second model and a plan are valid, and are not applied either.
  const broken = yaml({
    models: { small: remote(upstream, "{ prompt: 99, completion: 99 }"), other: remote(upstream) },
    plans: { starter, pro: starter },
  });
  service.write(`${broken}log: { level: loud }\n`);
  service.program.signal("SIGHUP");
  await service.program.shows(/"reason":"The configuration is wrong:[^"]*inkwell\.yaml:7: log\.level: found/);
  const refused = await service.reload();
  assert.equal(refused.status, 422);
  assert.match(JSON.stringify(refused.body), /"code":"configuration_invalid"/);
  assert.match(JSON.stringify(refused.body), /inkwell\.yaml:7: log\.level: found \\\\?"loud/);

  assert.deepEqual(await modelsOf(service), ["small"]);
  const answer = await ask({ ...service, model: "small" });
  assert.equal(answer.status, 200);
  await answer.text();
  const { cost } = receiptOf(service, answer.headers.get("x-request-id") ?? "");
  assert.equal(cost, 5 * 10 + 2 * 30, "the old price");
  assert.equal(planSections(service), 1);
  const { ready, last_reload } = await service.readiness();
  assert.equal(ready, true, "a failed reload does not make a node unready");
  assert.match(JSON.stringify(last_reload), /"successful":false/);
  assert.equal(await service.metric("inkwell_config_last_reload_successful"), 0);
  assert.equal(await service.metric("inkwell_config_last_reload_success_timestamp_seconds"), loadedSeconds);

  service.write({ models: { small: remote(upstream) } });
  const { status, body } = await service.reload();
  const { reloaded_at, ...changes } = body;
  assert.equal(status, 200);
  assert.ok(Math.abs(Date.parse(String(reloaded_at)) - Date.now()) < 60_000);
  assert.deepEqual(changes, nothing);
  assert.equal(await service.metric("inkwell_config_last_reload_successful"), 1);
});

test("refuses to reload if its file is empty or gone, although a start would use the defaults", async () => {
  await using upstream = await startUpstream();
  await using service = await start({ models: { small: remote(upstream) } });
  service.write("\n");
  const empty = await service.reload();
  assert.equal(empty.status, 422);
  assert.match(JSON.stringify(empty.body), /inkwell\.yaml has no settings/);
  service.write("# models:\n#   small: {}\n");
  assert.match(JSON.stringify((await service.reload()).body), /inkwell\.yaml has no settings/);
  rmSync(path.join(service.folder, "inkwell.yaml"));
  const gone = await service.reload();
  assert.equal(gone.status, 422);
  assert.match(JSON.stringify(gone.body), /The configuration file \S+inkwell\.yaml does not exist\./);
  assert.deepEqual(await modelsOf(service), ["small"]);
});

test("adds, changes and removes models while their answers run", async () => {
  await using service = await start({ models: { first: llama() } });
  const { program } = service;
  const story = { ...service, ...long };
  /** Starts an answer, and halts its engine. */
  const halted = async (model: string, engine: number) => {
    const stream = await openStream({ ...story, model });
    process.kill(engine, "SIGSTOP");
    return stream;
  };
  const changes = async (models: Settings["models"]) => {
    service.write({ models });
    const { status, body } = await service.reload();
    assert.equal(status, 200, JSON.stringify(body));
    return body.models;
  };
  const firstEngine = program.enginePid();
  const streams = [await halted("first", firstEngine)];

  const second = llama("{ prompt: 20, completion: 40 }");
  const added = await changes({ first: llama(), second });
  assert.deepEqual(added, { added: ["second"], removed: [], changed: [] });
  assert.deepEqual(await modelsOf(service), ["first", "second"]);
  const secondEngine = program.enginePid();
  assert.notEqual(secondEngine, firstEngine);
  assert.equal(await service.metric('inkwell_model_ready\\{model="first"\\}'), 1);
  streams.push(await halted("second", secondEngine));

  const smaller = second.replace("4096", "1024").replace(/ }$/, ", max_output_tokens: 7 }");
  const changed = await changes({ first: llama(), second: smaller });
  assert.deepEqual(changed, { added: [], removed: [], changed: ["second"] });
  const newEngine = program.enginePid();
  assert.notEqual(newEngine, secondEngine);
  const short = await ask({ ...service, model: "second", content: "An endless story." });
  const { usage: used }: { usage: { completion_tokens: number } } = JSON.parse(await short.text());
  assert.equal(used.completion_tokens, 7, "the new limit");

  const removed = await changes({ second: smaller });
  assert.deepEqual(removed, { added: [], removed: ["first"], changed: [] });
  const unknown = await ask({ ...service, model: "first" });
  assert.equal(unknown.status, 404);
  assert.match(await unknown.text(), /model_not_found/);
  for (const engine of [firstEngine, secondEngine]) assert.ok(isRunning(engine), "its answer runs");
  const shown = await (await fetch(`${service.operatorUrl}/metrics`)).text();
  assert.doesNotMatch(shown, /^inkwell_model_ready\{model="first"\}/m);
  assert.match(shown, /^inkwell_model_ready\{model="second"\} 1$/m);

  for (const engine of [firstEngine, secondEngine]) process.kill(engine, "SIGCONT");
  for (const stream of streams) {
    assert.equal((await stream.rest()).at(-1), "[DONE]");
    assert.equal(receiptOf(service, stream.requestId).completion_tokens, long.max_tokens);
  }
  for (const engine of [firstEngine, secondEngine]) await processEnded(engine);
  assert.ok(isRunning(newEngine));
  assert.equal((await ask({ ...service, model: "second", max_tokens: 1 })).status, 200);
});

test("keeps all models and plans if one of the new models cannot be loaded", async () => {
  await using upstream = await startUpstream();
  await using service = await start({ models: { first: remote(upstream) } });
  const broken = path.join(service.folder, "broken.gguf");
  writeFileSync(broken, readFileSync(miniature).subarray(0, 50_000));
  service.write({
    models: { second: llama(), third: llama().replace(miniature, broken) },
    plans: { starter, pro: starter },
    rest: "cors: { origins: ['https://a.example'] }\n",
  });
  const { status, body } = await service.reload();
  assert.equal(status, 422);
  assert.match(JSON.stringify(body), /inkwell\.yaml:6: models\.third/);
  assert.deepEqual(await modelsOf(service), ["first"]);
  assert.equal(planSections(service), 1);
  assert.equal((await ask({ ...service, model: "first", max_tokens: 1 })).status, 200);
  await processEnded(service.program.enginePid());
  const headers = { authorization: `Bearer ${service.key}`, origin: "https://a.example" };
  const models = await fetch(`${service.url}/v1/models`, { headers });
  assert.equal(models.headers.get("access-control-allow-origin"), null);
});

test("charges a running answer at the price of its hold, and the next one at the new price", async () => {
  await using upstream = await startUpstream();
  const goOn = pausedOnce(upstream);
  await using service = await start({ models: { small: remote(upstream) } });
  const stream = await openStream({ ...service, model: "small" });
  service.write({ models: { small: remote(upstream, "{ prompt: 1000, completion: 3000 }") } });
  const { body } = await service.reload();
  assert.deepEqual([body.prices, body.models], [["small"], nothing.models]);
  goOn.resolve();
  await stream.rest();
  assert.equal(receiptOf(service, stream.requestId).cost, 5 * 10 + 2 * 30);
  const next = await openStream({ ...service, model: "small" });
  await next.rest();
  assert.equal(receiptOf(service, next.requestId).cost, 5 * 1000 + 2 * 3000);
});

test("sends the new system prompt with the next request, and keeps the engine", async () => {
  await using upstream = await startUpstream();
  const models = (more = "") => ({ models: { far: remote(upstream, undefined, more) } });
  await using service = await start(models());
  const sent = async () => {
    assert.equal(
      (await ask({ url: service.url, key: service.key, model: "far", content: "Hi" })).status,
      200,
    );
    return upstream.last().body.messages;
  };
  const question = { role: "user", content: "Hi" };
  assert.deepEqual(await sent(), [question]);
  service.write(models(", system_prompt: Answer briefly."));
  const { status, body } = await service.reload();
  assert.deepEqual([status, body.models], [200, { added: [], removed: [], changed: ["far"] }]);
  assert.deepEqual(await sent(), [{ role: "system", content: "Answer briefly." }, question]);
  service.write(models());
  assert.equal((await service.reload()).status, 200);
  assert.deepEqual(await sent(), [question]);
});

test("applies origins, limits, host names and the log level, and names what needs a restart", async () => {
  await using upstream = await startUpstream();
  const models = { small: remote(upstream) };
  await using service = await start({ models });
  const { url, key, operatorUrl } = service;
  const rest = `cors: { origins: ["https://a.example"] }
limits: { body_bytes: 2000, messages: 1, queue: 1 }
operator: { hosts: [ops.example] }
log: { level: debug }
models_dir: ./elsewhere
`;
  service.write({ models, rest });
  const { body } = await service.reload();
  assert.deepEqual(body.settings, [
    "limits.body_bytes",
    "limits.upload_bytes",
    "limits.messages",
    "limits.queue",
    "operator.hosts",
    "cors.origins",
    "log.level",
  ]);
  assert.deepEqual(body.needs_restart, ["models_dir"]);
  assert.deepEqual((await service.reload()).body.needs_restart, ["models_dir"], "it is reported again");
  const headers = { authorization: `Bearer ${key}`, origin: "https://a.example" };
  const shown = await fetch(`${url}/v1/models`, { headers });
  assert.equal(shown.headers.get("access-control-allow-origin"), "https://a.example");
  const large = await ask({ url, key, model: "small", content: "x".repeat(3000) });
  assert.match(await large.text(), /larger than 2000 bytes/);
  const health = await fetch(`${operatorUrl}/readyz`, { headers: { host: "ops.example" } });
  assert.equal(health.status, 200);
  assert.ok(!existsSync(path.join(service.folder, "elsewhere")));

  service.write({ models, rest: "log: { level: error }\n" });
  const quiet = await service.reload();
  assert.equal(quiet.status, 200);
  const lines = service.program.stderr.length;
  assert.equal((await ask({ url, key, model: "small" })).status, 200);
  service.write({ models, rest: "log: { level: info }\n" });
  await service.reload();
  await until("the change to info is logged", () =>
    /"settings":\["log\.level"\]/.test(service.program.stderr.slice(lines)),
  );
  assert.doesNotMatch(
    service.program.stderr.slice(lines),
    /POST \/v1\/chat\/completions/,
    "the level was error",
  );
});

test("refuses a reload while one runs", async () => {
  // The port takes the connection of the download and never answers.
  await using upstream = await startUpstream();
  upstream.playOther = () => {};
  const models = { small: remote(upstream) };
  await using service = await start({ models });
  const source = `${upstream.url.replace("/v1", "")}/model.gguf`;
  service.write({ models: { ...models, slow: llama().replace(miniature, `"${source}"`) } });
  const loading = service.reload().catch(() => null);
  await until("the download has begun", () => upstream.asked.length > 0);
  const headers = { authorization: `Bearer ${token}` };
  const applying = await fetch(`${service.operatorUrl}/admin/plans/apply`, { method: "POST", headers });
  assert.match(await applying.text(), /"code":"cannot_reload_now"/);
  const refused = await service.reload();
  assert.equal(refused.status, 409);
  assert.match(JSON.stringify(refused.body), /"code":"cannot_reload_now"/);
  service.program.signal("SIGHUP");
  await service.program.shows("the configuration was not reloaded on SIGHUP");
  assert.equal((await ask({ ...service, model: "small" })).status, 200);
  const { last_reload } = await service.readiness();
  assert.equal(last_reload, null, "a refused reload is no reload");
  // The stop ends the reload.
  const stopped = await service.program.stop();
  const ended = await loading;
  assert.deepEqual(
    [ended?.status, JSON.stringify(ended?.body).includes("The service is stopping.")],
    [409, true],
  );
  assert.equal(stopped, 0);
});

test("fails no request in many reloads under load", async () => {
  const reloads = isThorough ? 50 : 20;
  await using upstream = await startUpstream();
  const price = (n: number) => `{ prompt: ${10 + n}, completion: 30 }`;
  const settings = (n: number): Settings => ({
    models: {
      kept: llama(price(n)),
      remote: remote(upstream, price(n), n % 2 === 0 ? "" : ", parallel: 9"),
      ...(n % 10 === 5 ? { extra: remote(upstream) } : {}),
    },
    rest:
      n % 2 === 0
        ? "cors: { origins: ['https://a.example'] }\n"
        : "log: { level: warn }\nlimits: { queue: 99 }\n",
  });
  await using service = await start(settings(0));
  let isOver = false;
  const failures: string[] = [];
  let answers = 0;
  const client = async (model: string, stream: boolean) => {
    while (!isOver) {
      const response = await ask({ ...service, model, stream, max_tokens: 10 });
      const body = await response.text();
      answers += 1;
      if (response.status !== 200 || body.includes('"error"')) failures.push(`${response.status} ${body}`);
    }
  };
  const clients = [client("kept", true), client("remote", true), client("remote", false)];
  for (let n = 1; n <= reloads; n += 1) {
    const before = answers;
    service.write(settings(n));
    const { status, body } = await service.reload();
    assert.equal(status, 200, JSON.stringify(body));
    assert.deepEqual(body.prices, ["kept", "remote"]);
    await until("requests were answered since", () => answers > before);
  }
  isOver = true;
  await Promise.all(clients);
  assert.deepEqual(failures, []);
  assert.ok(answers >= reloads, String(answers));
  const prices = query(service.folder, "select distinct price_prompt as price from charge order by 1");
  assert.ok(prices.length >= reloads / 2, `${prices.length} prices were charged`);
});

test("warns of a model that no plan can pay for at the start and after a reload, until the file is mended", async () => {
  const settings = (credits: number): Settings => ({
    models: { big: remote({ url: "http://127.0.0.1:1/v1" }, "{ prompt: 1000000, completion: 1000000 }") },
    plans: { small: `{ base: { credits: ${credits}, every: P1D }, overage: { credits: 0, every: P1D } }` },
  });
  await using service = await start(settings(30));
  const logged = /"model":"big","smallest":"529","plans":\["small"\]/;
  await until("the log has the warning", () => logged.test(service.program.stderr));
  const warning = /The smallest request to big takes 529 credits/;
  const warned = async () => warning.test(JSON.stringify((await service.readiness()).warnings));
  assert.ok(await warned());
  service.write(settings(31));
  assert.match(JSON.stringify((await service.reload()).body.warnings), warning);
  service.write(settings(529));
  service.program.signal("SIGHUP");
  await until("the warning is gone", async () => !(await warned()));
});

test("inkwell reload shows the changes, or the fault with file and line", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const file = path.join(folder.path, "inkwell.yaml");
  const ports = { INKWELL_PORT: String(await freePort()), INKWELL_OPERATOR_PORT: String(await freePort()) };
  const command = (...args: string[]) => inkwell(folder.path, ["reload", ...args], { env: ports });
  const models = { small: remote(upstream) };
  writeFileSync(file, yaml({ models }));
  const away = await command();
  assert.equal(away.code, 1);
  assert.match(away.stderr, /^No service runs here, and this needs one\. Start it with/);

  await using program = startInside(folder.path, { env: ports });
  await program.up();
  const address = path.join(folder.path, "data", "operator-address");
  assert.equal(statSync(address).mode & 0o777, 0o600);
  const same = await command();
  assert.deepEqual([same.code, same.stdout], [0, ""]);
  assert.match(same.stderr, /Nothing has changed\.$/m);

  writeFileSync(
    file,
    yaml({ models: { ...models, two: remote(upstream) }, rest: "log: { level: debug }\nmodels_dir: ./x\n" }),
  );
  const preview = await command("--dry-run");
  assert.equal(preview.code, 0, preview.stderr);
  assert.match(
    preview.stdout,
    /^SETTING +BEFORE +AFTER\nmodels\.two +- +two: upstream, .*\nmodels_dir .*\nlog\.level +info +debug\n$/,
  );
  assert.match(preview.stderr, /^Only a restart changes models_dir\.\nNothing has changed yet\./m);
  const changed = await command();
  assert.equal(changed.code, 0, changed.stderr);
  assert.equal(
    changed.stdout,
    "models added: two\nsettings changed: log.level\nneeds a restart: models_dir\n",
  );
  const { reloaded_at: _, ...document } = JSON.parse((await command("--json")).stdout);
  assert.deepEqual(document, { ...nothing, needs_restart: ["models_dir"] });

  writeFileSync(
    file,
    yaml({ models: { ...models, two: remote(upstream), three: llama().replace(miniature, "./none.gguf") } }),
  );
  const { changes } = JSON.parse((await command("--dry-run", "--json")).stdout);
  assert.ok(changes.some(({ setting }: { setting: string }) => setting === "models.three"));
  const refused = await command();
  assert.equal(refused.code, 1);
  assert.match(
    refused.stderr,
    /^inkwell\.yaml:6: models\.three\.source: model file \S+none\.gguf cannot be opened/,
  );
  writeFileSync(file, `${yaml({ models })}loud: true\n`);
  const broken = await command("--json");
  assert.equal(broken.code, 1);
  assert.match(broken.stdout, /inkwell\.yaml:5: loud is not known/);

  // The service takes a new token at its start only, and commands read it at once.
  writeFileSync(file, yaml({ models, rest: "operator: { token: another-token-0123456789 }\n" }));
  const stranger = await command();
  assert.equal(stranger.code, 1);
  assert.match(stranger.stderr, /This is not the operator token of this service\./);

  writeFileSync(file, yaml({ models }));
  await program.stop();
  assert.ok(!existsSync(address));
  const gone = await command();
  assert.equal(gone.code, 1);
  assert.match(gone.stderr, /^No service runs here/);
});
