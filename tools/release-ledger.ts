/**
 * `npm run release:ledger [-- --folder DIR]`: makes the ledgers of this version that the tests of
 * later versions upgrade (test/service/releases.test.ts): a file of SQLite and a dump of
 * PostgreSQL, each with what the operator API says about it, and their configuration.
 *
 * The real service writes them, while clients, operators, people and a receiver of events use it.
 * It is killed twice: the second time while requests run, which a later version has to end. Every
 * table has rows.
 */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import pg from "pg";
import { stringify } from "yaml";
import { readMigrations } from "../src/store/migrations.ts";
import { createMigrationTable } from "../src/store/postgres/schema.ts";
import { version } from "../src/version.ts";
import { HttpLoad, type LoadKey } from "../test/fixtures/http-load.ts";
import { ask, openStream } from "../test/fixtures/http-stream.ts";
import { inkwell } from "../test/fixtures/inner-program.ts";
import { change } from "../test/fixtures/ledger-file.ts";
import { answerLoad } from "../test/fixtures/load-upstream.ts";
import { type Fields, fieldsOf, listOf } from "../test/fixtures/operator.ts";
import { pageHeader } from "../test/fixtures/page-header.ts";
import { freePort, newFolder, type Program, startProgram } from "../test/fixtures/program.ts";
import {
  answersAt,
  type Known,
  type ReleasedStore,
  releasedFiles,
  releasesFolder,
  releaseToken,
} from "../test/fixtures/released-ledger.ts";
import { until } from "../test/fixtures/until.ts";
import { breakOff, type Call, startUpstream } from "../test/fixtures/upstream.ts";
import { first, text } from "../test/fixtures/upstream-events.ts";
import { startReceiver } from "../test/fixtures/webhook-receiver.ts";
import { optionsOf } from "./options.ts";
import { ledgers, type TorturedLedger } from "./torture-ledger.ts";

const usage = `Usage: npm run release:ledger [-- --folder DIR]
  --folder DIR  where the files go (default: test/releases/${version})`;

const noOverage = { credits: 0, every: "P1Y" };
const eventSecret = `whsec_${Buffer.alloc(32, 1).toString("base64")}`;

/** The second configuration changes a plan, adds one and retires one. */
function configuration(n: 1 | 2): string {
  const model = { engine: "upstream", url: `\${UPSTREAM_URL}`, model: "any", context_window: 8192 };
  return stringify({
    plans: {
      starter: {
        base: { credits: n === 1 ? 4000 : 5000, every: "P1M", align: "calendar" },
        overage: { credits: 700, every: "P1Y" },
      },
      capped: {
        base: { credits: 9000, every: "P1W", align: "calendar" },
        overage: { credits: 100, every: "P1M" },
        caps: [
          { credits: 3000, every: "PT5H" },
          { name: "dear", credits: 500, every: "P1W", align: "calendar", models: ["dear*"] },
        ],
        limits: { requests_per_minute: 600, tokens_per_minute: 100_000, concurrent: 8 },
        models: ["plain", "dear"],
        timezone: "America/New_York",
      },
      minute: { base: { credits: 300, every: "PT1M" }, overage: noOverage },
      poor: { base: { credits: 100, every: "P1Y" }, overage: noOverage },
      [n === 1 ? "old" : "new"]: { base: { credits: 500, every: "P1D" }, overage: noOverage },
    },
    models: {
      plain: { ...model, price: { prompt: 100_000, completion: 1_000_000, cached_prompt: 50_000 } },
      dear: { ...model, price: { prompt: 400_000, completion: 3_000_000 } },
    },
    timezone: "Europe/Berlin",
    currency: { code: "EUR", credits_1000: 2.5 },
    operator: { support_credits: 100 },
    portal: { url: `\${PORTAL_URL}` },
    events: {
      networks: ["127.0.0.0/8"],
      endpoints: { billing: { url: `\${RECEIVER_URL}`, secret: eventSecret } },
    },
  });
}

/** Answers of the model server. A silent one never begins, a broken one breaks off. */
async function answer(call: Call): Promise<void> {
  const prompt = JSON.stringify(call.body.messages);
  if (prompt.includes("silent")) await call.closed;
  else if (prompt.includes("broken")) await breakOff(first, text("word "), text("word "))(call);
  else await answerLoad(call);
}

/** The service, and all that happens to it. */
class History {
  readonly #folder: string;
  readonly #ledger: TorturedLedger;
  readonly #env: Record<string, string>;
  readonly #load: HttpLoad;
  readonly #url: string;
  readonly #operatorUrl: string;
  readonly #portal: string;
  #program: Program | null = null;
  readonly #keys = new Map<string, LoadKey>();

  constructor(folder: string, ledger: TorturedLedger, env: Record<string, string>) {
    const { INKWELL_PORT, INKWELL_OPERATOR_PORT, PORTAL_URL = "" } = env;
    this.#folder = folder;
    this.#ledger = ledger;
    this.#env = env;
    this.#url = `http://127.0.0.1:${INKWELL_PORT}`;
    this.#operatorUrl = `http://127.0.0.1:${INKWELL_OPERATOR_PORT}`;
    this.#portal = PORTAL_URL;
    const nodes = [{ url: this.#url, operatorUrl: this.#operatorUrl }];
    this.#load = new HttpLoad({ seed: 1, nodes, token: releaseToken, models: ["plain", "dear"] });
  }

  /** The newest secret of the first key of each account. */
  get secrets(): Record<string, string> {
    return Object.fromEntries([...this.#keys].map(([account, { secret }]) => [account, secret]));
  }

  configure(n: 1 | 2): void {
    writeFileSync(path.join(this.#folder, "inkwell.yaml"), configuration(n));
  }

  async start(): Promise<void> {
    this.#program = startProgram(this.#folder, { env: this.#env });
    await this.#program.up();
  }

  async kill(): Promise<void> {
    await this.#program?.stop("SIGKILL");
    await this.#ledger.settled();
  }

  /** The text of an answer, which must be a good one. */
  async #say(
    account: string,
    content: string,
    body: Fields = {},
    more: Record<string, string> = {},
  ): Promise<string> {
    const { secret } = this.#key(account);
    const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json", ...more };
    const messages = [{ role: "user", content }];
    const sent = JSON.stringify({ model: "plain", max_tokens: 20, messages, ...body });
    const response = await fetch(`${this.#url}/v1/chat/completions`, { method: "POST", headers, body: sent });
    const said = await response.text();
    assert.equal(response.status, 200, said);
    return said;
  }

  #key(account: string): LoadKey {
    return this.#keys.get(account) ?? assert.fail(`${account} has a key`);
  }

  async #page(url: string, body: object): Promise<void> {
    const headers = { ...pageHeader, "content-type": "application/json" };
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    assert.equal(response.status, 200, await response.text());
  }

  async openAccounts(): Promise<void> {
    const load = this.#load;
    const open = async (id: string, plan: string, more: object = {}) => {
      await load.must("/admin/accounts", { id, plan, ...more });
      this.#keys.set(id, await load.createKey(id, { name: `of ${id}` }));
    };
    await open("ada", "starter", {
      owner: "Ada Lovelace",
      email: "ada@x.example",
      external_id: "7",
      note: "é",
    });
    await open("bob", "capped");
    for (const id of ["minute", "poor"]) await open(id, id);
    for (const id of ["gone", "later", "idle"]) await open(id, "old");
    for (const id of ["rich", "class"]) await open(id, "starter");
    await load.createKey("ada", { portal: "account", models: ["plain"], requests_per_minute: 60 });
    await load.createKey("bob", { expires_at: "2100-01-31", concurrent: 2, tokens_per_minute: 5000 });
    const acts_for = { name: "webui", header: "x-person", plan: "starter", new_accounts_per_day: 5 };
    const webui = await load.createKey("class", {
      acts_for,
      spending_caps: [{ credits: 900, every: "P1D" }],
    });
    this.#keys.set("class", webui);
    const tight = { spending_caps: [{ credits: 100, every: "P1M", models: ["plain"] }] };
    this.#keys.set("later", await load.createKey("later", tight));
  }

  /** Requests that end in each way that a client or an operator can bring about. */
  async chat(): Promise<void> {
    const load = this.#load;
    const both = [this.#key("ada"), this.#key("bob")];
    for (let n = 0; n < 12; n += 1) await load.request(load.pick(both));
    await this.#say("ada", "An endless story", { max_tokens: 300 });
    await this.#say("poor", "An endless story", { max_tokens: 200 });
    await this.#say("later", "An endless story", { max_tokens: 200 });
    await this.#say("ada", "broken", { stream: true });
    for (const person of ["ada", "grace"])
      await this.#say("class", "What is ink?", {}, { "x-person": person });
    const { secret: key } = this.#key("bob");
    const content = "An endless story";
    const running = await openStream({ url: this.#url, key, model: "plain", content, max_tokens: 4000 });
    await load.must(`/admin/requests/${running.requestId}/stop`, {});
    await running.rest();
  }

  async operate(): Promise<void> {
    const load = this.#load;
    for (let n = 0; n < 19; n += 1) await load.topUp("rich", 2 + (n % 3));
    for (const id of ["ada", "bob", "rich"]) {
      await load.topUp(id, 30);
      await load.promote(id, 5);
      await load.refund(id);
      await load.adjust(id);
      await load.memo(id);
    }
    const soon = new Date(Date.now() + 20_000).toISOString();
    const gift = { operation_id: load.newId("gift"), credits: 9, reason: "for a moment", expires_at: soon };
    await load.must("/admin/accounts/ada/adjustments", gift);
    const support = { operation_id: load.newId("key"), name: "help desk", role: "support" };
    const { key } = await load.must("/admin/operator-keys", support);
    const given = { operation_id: load.newId("gift"), credits: 3, reason: "sorry" };
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const asked = { method: "POST", headers, body: JSON.stringify(given) };
    assert.equal((await fetch(`${this.#operatorUrl}/admin/accounts/bob/adjustments`, asked)).status, 200);
    const spare = await load.createKey("ada");
    await load.rotate(this.#key("ada"));
    await load.revoke(spare);
    const state = (id: string, to: string) =>
      load.must(`/admin/accounts/${id}/state`, { operation_id: load.newId("state"), state: to });
    await state("idle", "suspended");
    await state("gone", "closed");
    const ends = { operation_id: load.newId("end"), ends_at: "2100-01-31T00:00:00Z" };
    await load.must("/admin/accounts/idle/end", ends);
    const contact = { owner: "Bob", email: "bob@x.example", balance_low_mail: "off" };
    await load.must("/admin/accounts/bob/contact", contact, "PATCH");
  }

  async meetPeople(): Promise<void> {
    const load = this.#load;
    const portal = `${this.#portal}/api/session`;
    await this.#page(`${this.#operatorUrl}/admin/session`, { token: releaseToken });
    await this.#page(portal, { key: this.#key("ada").secret });
    const { link: invited } = await load.must("/admin/accounts/ada/invitation", {});
    await this.#page(portal, { invitation: String(invited).split("#invite=")[1] });
    await load.must("/admin/accounts/bob/invitation", {});
    const ends_at = new Date(Date.now() + 86_400_000).toISOString();
    const wanted = {
      operation_id: load.newId("link"),
      name: "Informatics",
      plan: "starter",
      seats: 3,
      ends_at,
    };
    const { link } = await load.must("/admin/links", wanted);
    const [, code] = String(link).split("#join=");
    for (const name of ["Grace", "Alan"])
      await this.#page(portal, { join: { code, join_id: name.padEnd(22, "-"), name } });
    const added = { front_end: "webui", value: "erased", account: "minute" };
    const { id } = await load.must("/admin/people", added);
    await load.must(`/admin/people/${id}/data`, {}, "DELETE");
  }

  async changePlans(): Promise<void> {
    const load = this.#load;
    this.configure(2);
    await load.must("/admin/reload", {});
    const move = (id: string, plan: string, at: string) =>
      load.must(`/admin/accounts/${id}`, { operation_id: load.newId("plan"), plan, at }, "PATCH");
    await move("rich", "capped", "new_window");
    await move("bob", "starter", "refresh");
    await move("later", "new", "now");
    await move("minute", "new", "refresh");
  }

  /** Waits for what only time brings about: windows, sums, and the end of a promotion. */
  async passTime(): Promise<void> {
    const rows = (sql: string) => this.#ledger.query(sql);
    const [dead] = await rows("select id from hold");
    await this.#load.must(`/admin/requests/${dead?.id}/stop`, {});
    await until(
      "the hold of the first crash has ended",
      async () => (await rows("select id from hold")).length === 0,
    );
    await until("a scheduled plan has begun", async () => {
      const [account] = await rows("select plan from account where id = 'minute'");
      return account?.plan === "new";
    });
    await until(
      "usage is summed",
      async () => (await rows("select day from usage_close where through > 0")).length > 0,
    );
    for (const id of ["ada", "minute"]) await this.#say(id, "What is ink?");
    await this.#load.memo("ada");
  }

  async audit(): Promise<void> {
    const { code, stderr } = await inkwell(this.#folder, ["audit", "--record"], { env: this.#env });
    assert.equal(code, 0, stderr);
  }

  /** Leaves a request that has made text running, and if `isSilent` one that has made none. */
  async leaveRunning({ isSilent }: { isSilent: boolean }): Promise<void> {
    const { secret: key } = this.#key("ada");
    const request = { url: this.#url, key, model: "plain", max_tokens: 4000 };
    await openStream({ ...request, content: "An endless story" });
    if (isSilent) void ask({ ...request, content: "silent" }).catch(() => {});
    await until("both run, and one has a checkpoint", async () => {
      const holds = await this.#ledger.query("select completion_tokens as made from hold");
      return holds.length === (isSilent ? 2 : 1) && holds.some(({ made }) => Number(made) > 0);
    });
  }

  /** Asks for everything about the ledger, as it is now. */
  async known(): Promise<Known> {
    const at_ms = Date.now();
    const answersTo = (paths: string[]) =>
      answersAt({ folder: this.#folder, env: this.#env, atMs: at_ms }, paths);
    const month = new Date(at_ms).toISOString().slice(0, 7);
    const page = "limit=500";
    const lists = ["accounts", "holds", "usage", "keys", "plans", "people", "links", "operator-keys"];
    const answers = await answersTo([
      ...[...lists, "log", "events/endpoints/billing/deliveries"].map((name) => `/admin/${name}?${page}`),
      ...["day", "model", "key", "account"].map((by) => `/admin/usage/sums?by=${by}&${page}`),
      "/admin/usage/hours",
      "/admin/events/endpoints",
      `/admin/payments/report?month=${month}`,
      "/admin/audit",
      "/admin/time",
    ]);
    const accounts = listOf(fieldsOf(answers[`/admin/accounts?${page}`]).data).map(
      ({ id }) => `/admin/accounts/${id}`,
    );
    const ofAccounts = await answersTo(
      accounts.flatMap((account) => [
        `${account}/balance`,
        `${account}/journal?${page}`,
        `${account}/payments?${page}`,
      ]),
    );
    const known = { at_ms, keys: this.secrets, answers: { ...answers, ...ofAccounts } };
    for (const [url, body] of Object.entries(known.answers))
      assert.equal(fieldsOf(body).next ?? null, null, `${url} has all rows`);
    return known;
  }
}

/** Lets the first day of the ledger end: the next service sums its charges. */
async function endDay(store: ReleasedStore, folder: string, ledger: TorturedLedger): Promise<void> {
  const emptied = "delete from usage_close";
  if (store === "PostgreSQL") {
    await onDatabase(ledger, (client) => client.query(`set session_replication_role = replica; ${emptied}`));
    return;
  }
  const trigger = "usage_close_is_never_deleted";
  const [made] = await ledger.query("select sql from sqlite_master where name = ?", trigger);
  for (const sql of [`drop trigger ${trigger}`, emptied, String(made?.sql)]) change(folder, sql);
}

async function onDatabase<T>(ledger: TorturedLedger, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: ledger.env.INKWELL_DATABASE ?? "" });
  await client.connect();
  await client.query("set search_path = inkwell");
  return await work(client).finally(() => client.end());
}

/** Statements that make the ledger in an empty database. `pg_dump` is no npm package. */
async function dumpOf(client: pg.Client): Promise<string> {
  const schema = readMigrations("postgres").map(({ sql }) => sql);
  const { rows: tables } = await client.query(
    "select relname as name from pg_class where relnamespace = 'inkwell'::regnamespace and relkind = 'r' order by 1",
  );
  const rows: string[] = [];
  for (const { name } of tables) {
    const { rows: found } = await client.query(
      `select coalesce(json_agg(r), '[]')::text as json from ${name} r`,
    );
    const json = client.escapeLiteral(found[0]?.json);
    rows.push(
      `delete from ${name};`,
      `insert into ${name} overriding system value select * from json_populate_recordset(null::${name}, ${json});`,
    );
  }
  const { rows: counted } = await client.query(
    "select table_name as name, column_name as number from information_schema.columns where table_schema = 'inkwell' and is_identity = 'YES'",
  );
  for (const { name, number } of counted)
    rows.push(`select setval(pg_get_serial_sequence('${name}', '${number}'), max(${number})) from ${name};`);
  const begin = ["create schema inkwell;", "set search_path = inkwell;", `${createMigrationTable};`];
  return [...begin, ...schema, "set session_replication_role = replica;", ...rows].join("\n");
}

async function assertAllTables(store: ReleasedStore, ledger: TorturedLedger): Promise<void> {
  const tables = await ledger.query(
    store === "SQLite"
      ? "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
      : "select relname as name from pg_class where relnamespace = 'inkwell'::regnamespace and relkind = 'r'",
  );
  for (const { name } of tables)
    assert.equal((await ledger.query(`select 1 from ${name} limit 1`)).length, 1, `${name} has no row`);
}

async function make(store: ReleasedStore, target: string): Promise<void> {
  await using upstream = await startUpstream(answer);
  await using folder = await newFolder();
  const receiver = await startReceiver();
  const portal = await freePort();
  const ledger = (await ledgers[store]?.(folder.path)) ?? assert.fail(`there is no ${store}`);
  const env = {
    ...ledger.env,
    INKWELL_PORT: `${await freePort()}`,
    INKWELL_OPERATOR_PORT: `${await freePort()}`,
    INKWELL_PORTAL_PORT: `${portal}`,
    INKWELL_OPERATOR_TOKEN: releaseToken,
    UPSTREAM_URL: upstream.url,
    RECEIVER_URL: receiver.url,
    PORTAL_URL: `http://127.0.0.1:${portal}`,
  };
  const history = new History(folder.path, ledger, env);
  try {
    history.configure(1);
    await history.start();
    await history.openAccounts();
    await history.chat();
    await history.operate();
    await history.meetPeople();
    await history.changePlans();
    await history.leaveRunning({ isSilent: false });
    await history.kill();
    await endDay(store, folder.path, ledger);
    // Events wait from now on.
    receiver.answer = (_, response) => {
      response.writeHead(503).end();
      return false;
    };
    await history.start();
    await history.passTime();
    await history.audit();
    await history.leaveRunning({ isSilent: true });
  } finally {
    await history.kill();
    await receiver.close();
  }
  await ledger.assertSound({ holds: 2 });
  await assertAllTables(store, ledger);
  const known = await history.known();
  const files = releasedFiles[store];
  const write = (name: string, content: string | Buffer) =>
    writeFileSync(path.join(target, name), gzipSync(content, { level: 9 }));
  writeFileSync(path.join(target, "inkwell.yaml"), configuration(2));
  write(files.known, JSON.stringify(known, null, 1));
  write(files.ledger, store === "SQLite" ? await copyOf(folder.path, env) : await onDatabase(ledger, dumpOf));
  console.log(`${store}: ${Object.keys(known.answers).length} answers, the ledger is sound`);
}

async function copyOf(folder: string, env: Record<string, string>): Promise<Buffer> {
  const file = path.join(folder, "backup.db");
  const { code, stderr } = await inkwell(folder, ["backup", file], { env });
  assert.equal(code, 0, stderr);
  return readFileSync(file);
}

const { folder = path.join(releasesFolder, version) } = optionsOf(usage, { folder: { type: "string" } });
mkdirSync(folder, { recursive: true });
for (const store of ["SQLite", "PostgreSQL"] as const) await make(store, path.resolve(folder));
console.log(`The ledgers of ${version} are in ${path.resolve(folder)}`);
