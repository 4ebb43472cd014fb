/**
 * After a random load over HTTP on two nodes of one PostgreSQL, every balance, sum, report and
 * metric is what the raw receipts and journals add up to, by the arithmetic of this test alone.
 *
 * INKWELL_TEST_SEED repeats the choices of a run.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { HttpLoad, type LoadKey, type LoadPrice, type SeenRequest } from "../fixtures/http-load.ts";
import { inkwell as runInside } from "../fixtures/inner-program.ts";
import { answerLoad } from "../fixtures/load-upstream.ts";
import { type Fields, fieldsOf, listOf } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";
import {
  type Folder,
  freePort,
  newFolder,
  type Program,
  startProgram,
  summingEntry,
  type Up,
} from "../fixtures/program.ts";
import {
  million,
  type Receipt,
  RecomputedAccount,
  receiptOf,
  shareOf,
  sumOf,
} from "../fixtures/recomputed-account.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";

const seed = Number(process.env.INKWELL_TEST_SEED ?? Date.now() % 1_000_000);
const token = "the-token-of-both-nodes-0123456789";
const accounts = ["team", "mixed", "minute", "leaving", "serial", "poor"];
const planOf: Readonly<Record<string, string>> = {
  minute: "minute",
  leaving: "minute",
  serial: "small",
  poor: "poor",
};
/** A request may run while a window of these accounts ends: two windows may have paid it. */
const rolling = ["minute", "leaving"];
const prices: Readonly<Record<string, LoadPrice>> = {
  plain: { prompt: 10_007, completion: 100_003, cached: 5003 },
  dear: { prompt: 40_009, completion: 250_007, cached: 20_011 },
};
const models = Object.keys(prices);
/** The first windows of a minute began so long before their accounts. */
const earlierMs = 52_000;
const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

function configuration(minuteCredits: number, upstream: Upstream): string {
  const engine = `engine: upstream, url: "${upstream.url}", model: any, context_window: 1024, parallel: 4`;
  const plan = (name: string, base: string, overage: number) =>
    `  ${name}:\n    base: { ${base} }\n    overage: { credits: ${overage}, every: P1Y }\n`;
  const model = ([name, { prompt, completion, cached }]: [string, LoadPrice]) =>
    `  ${name}: { ${engine}, price: { prompt: ${prompt}, completion: ${completion}, cached_prompt: ${cached} } }\n`;
  return `plans:
${plan("year", "credits: 300, every: P1Y", 40)}${plan("richer", "credits: 500, every: P1Y", 60)}
${plan("minute", `credits: ${minuteCredits}, every: PT1M`, 40)}${plan("poor", "credits: 8, every: P1Y", 4)}
${plan("small", "credits: 20, every: P1Y", 5)}${plan("month", "credits: 30, every: P1M", 5)}
models:
${Object.entries(prices).map(model).join("")}`;
}

interface Node extends Up {
  folder: Folder;
  program: Program;
  portalUrl: string;
  env: Record<string, string>;
}

describe(`a random load on two nodes, seed ${seed}`, { skip: noPostgres ?? false }, () => {
  const nodes: Node[] = [];
  const receipts: Receipt[] = [];
  const books = new Map<string, { entries: Fields[]; account: RecomputedAccount }>();
  let upstream: Upstream;
  let server: Postgres;
  let database = "";
  let load: HttpLoad;

  before(async () => {
    upstream = await startUpstream(answerLoad);
    server = await postgres();
    database = await server.create();
    const started = await Promise.all(
      [0, 1].map(async () => {
        const folder = await newFolder();
        writeFileSync(path.join(folder.path, "inkwell.yaml"), configuration(60, upstream));
        const env = {
          INKWELL_DATABASE: server.url(database),
          INKWELL_OPERATOR_TOKEN: token,
          INKWELL_PORTAL_PORT: `${await freePort()}`,
        };
        const program = startProgram(folder.path, { entry: summingEntry, env });
        const up = await program.up();
        const [, portalUrl = ""] = /^ {2}Portal +(http:\S+)/m.exec(program.stdout) ?? [];
        return { folder, program, env, portalUrl, ...up };
      }),
    );
    nodes.push(...started);
    load = new HttpLoad({ seed, nodes, token, models });
    await runLoad();
    await fetchAll();
  });

  after(async () => {
    for (const { program, folder } of nodes) {
      await program[Symbol.asyncDispose]();
      await folder[Symbol.asyncDispose]();
    }
    await upstream[Symbol.asyncDispose]();
  });

  const earlier = (...columns: string[]) =>
    columns.map((column) => `${column} = ${column} - ${earlierMs}`).join(", ");

  async function runLoad(): Promise<void> {
    for (const id of accounts) {
      await load.must("/admin/accounts", { id, plan: planOf[id] ?? "year" });
    }
    await server.sql(
      `set local session_replication_role = replica;
      update journal set ${earlier("at_ms")} where account in ('minute', 'leaving');
      update credit_grant set ${earlier("from_ms", "until_ms", "anchor_ms")} where account in ('minute', 'leaving');
      update account set ${earlier("created_ms", "at_ms", "plan_since_ms", "base_from_ms", "base_until_ms", "base_anchor_ms")},
        ${earlier("overage_from_ms", "overage_until_ms", "overage_anchor_ms")} where id in ('minute', 'leaving')`,
      database,
    );
    const serial = Object.assign(await load.createKey("serial"), { isSerial: true });
    await load.createKey("team", { portal: "account" });
    const capped = await load.createKey("team", { spending_caps: [{ credits: 25, every: "P1M" }] });
    await load.createKey("team", { spending_caps: [{ credits: 40, every: "P1D" }] });
    for (const account of ["mixed", "minute", "leaving", "poor"]) await load.createKey(account);
    await load.createKey("minute", { spending_caps: [{ credits: 30, every: "PT5H" }] });
    await load.topUp("serial", 20);
    await load.topUp("serial", 15);
    await load.topUp("mixed", 40);
    await load.must("/admin/accounts/leaving", planChange("year", "refresh"), "PATCH");
    const opened = new Map<string, number>();
    for (const id of rolling) opened.set(id, await windowOf(id));

    await Promise.all([send(110), one(serial, 12), operate(25)]);
    // These windows change while nothing runs, so that it is known which of them paid.
    await quiet();
    await load.must(`/admin/keys/${capped.id}`, capChange({ credits: 60, every: "P1M" }), "PATCH");
    await load.must("/admin/accounts/serial", planChange("month", "new_window"), "PATCH");
    for (const node of nodes) {
      writeFileSync(path.join(node.folder.path, "inkwell.yaml"), configuration(75, upstream));
      assert.equal((await load.operator("/admin/reload", { method: "POST", body: {} }, node)).status, 200);
    }
    for (const id of rolling) {
      await until(
        "the window of a minute has ended",
        async () => (await windowOf(id)) > (opened.get(id) ?? 0),
      );
      await load.promote(id, 3);
    }
    await Promise.all([send(70), one(serial, 25), operate(15), sumAside()]);
    await quiet();
  }

  const planChange = (plan: string, at: string) => ({ operation_id: load.newId("plan"), plan, at });
  const capChange = (cap: object) => ({ operation_id: load.newId("cap"), spending_caps: [cap] });

  /** Sends so many requests, eight at a time. */
  async function send(count: number): Promise<void> {
    let left = count;
    const client = async () => {
      while (left > 0) {
        left -= 1;
        await load.request(load.pick(load.keys.filter((key) => key.isSerial !== true)));
      }
    };
    await Promise.all(Array.from({ length: 8 }, client));
  }

  async function one(key: LoadKey, count: number): Promise<void> {
    for (let n = 0; n < count; n += 1) {
      await load.request(key);
      // A client that has left may still be answered for a moment.
      await until(
        "its hold has ended",
        async () => (await load.list("/admin/holds?account=serial")).length === 0,
      );
    }
  }

  async function operate(count: number): Promise<void> {
    const steps: (() => Promise<unknown>)[] = [
      () => load.topUp(load.pick(["team", "mixed", "poor", "serial"]), 2 + load.random(9)),
      () => load.topUp("poor", 2),
      () => load.promote(load.pick(["team", "mixed", "minute"]), 2 + load.random(9)),
      () => load.memo(load.pick(["team", "mixed", "minute"])),
      () => load.adjust(load.pick(["team", "mixed", "minute"])),
      () => load.refund(load.pick(["team", "mixed", "poor", "serial"])),
      () => load.must("/admin/accounts/mixed", planChange(load.pick(["year", "richer"]), "now"), "PATCH"),
      () => load.createKey(load.pick(["team", "mixed"]), { spending_caps: [{ credits: 5, every: "P1M" }] }),
      async () => {
        const { id } = load.pick(load.keys.filter((key) => key.account === "team"));
        await load.must(`/admin/keys/${id}`, { operation_id: load.newId("name"), name: "renamed" }, "PATCH");
      },
      async () => await load.rotate(load.pick(load.keys.filter(({ isRevoked }) => !isRevoked))),
      async () => {
        const known = load.keys.filter(({ account, isRevoked }) => account === "mixed" && !isRevoked);
        if (known.length > 2) await load.revoke(load.pick(known));
      },
    ];
    for (let n = 0; n < count; n += 1) await load.pick(steps)();
  }

  /** Both nodes sum the charges so far, as at the end of a day, and the rest later. */
  async function sumAside(): Promise<void> {
    const sql = "set local session_replication_role = replica; delete from usage_close";
    await server.sql(sql, database);
    await until("charges are summed", async () => (await summed()) > 0);
  }

  async function summed(): Promise<number> {
    const [row] = await server.sql("select through from usage_summed", database);
    return Number(row?.through);
  }

  /** Also the requests of clients that have left, which may still be on their way. */
  async function quiet(): Promise<void> {
    let looks = 0;
    await until("nothing runs, at ten looks in a row", async () => {
      const texts = await Promise.all(nodes.map(metricsOf));
      const isIdle = texts
        .flat()
        .every(({ name, value }) => name !== "inkwell_running_requests" || value === 0);
      looks = isIdle && (await load.list("/admin/holds")).length === 0 ? looks + 1 : 0;
      return looks === 10;
    });
  }

  async function metricsOf({ operatorUrl }: Node): Promise<Sample[]> {
    return samplesOf(await (await fetch(`${operatorUrl}/metrics`)).text());
  }

  async function windowOf(account: string): Promise<number> {
    const { body } = await load.operator(`/admin/accounts/${account}/balance`);
    return Date.parse(String(fieldsOf(body.baseWindow).startedAt));
  }

  /** Reads all receipts and journals; both nodes must have the same. */
  async function fetchAll(): Promise<void> {
    const [rows, others] = await Promise.all(nodes.map((node) => load.list("/admin/usage", node)));
    assert.deepEqual(rows, others);
    receipts.push(...(rows ?? []).map(receiptOf));
    for (const id of accounts) {
      const address = `/admin/accounts/${id}/journal`;
      const [entries, same] = await Promise.all(nodes.map((node) => load.list(address, node)));
      assert.deepEqual(entries, same);
      const account = new RecomputedAccount({ sentMs });
      const own = receipts.filter((receipt) => receipt.account === id);
      account.add(entries ?? [], new Map(own.map((receipt) => [receipt.seq, receipt])));
      books.set(id, { entries: entries ?? [], account });
    }
  }

  /**
   * When a request was sent. One whose client left before the head of the answer has no known id:
   * it was sent at the earliest with the first of these, or with the last of a serial key.
   */
  function sentMs({ id, key, atMs }: Receipt): number {
    const known = load.requests.find((seen) => seen.id === id);
    if (known !== undefined) return known.sentMs;
    const left = load.requests.filter((seen) => seen.id === null && seen.key === key && seen.sentMs <= atMs);
    const isSerial = load.keys.some((each) => each.id === key && each.isSerial === true);
    return left.at(isSerial ? -1 : 0)?.sentMs ?? 0;
  }

  const bookOf = (id: string) => {
    const book = books.get(id);
    assert.ok(book !== undefined);
    return book;
  };
  const receiptsOf = (filter: Partial<Receipt>) =>
    receipts.filter((receipt) =>
      Object.entries(filter).every(([field, value]) => fieldsOf(receipt)[field] === value),
    );

  async function cli(...args: string[]): Promise<unknown> {
    const [node] = nodes;
    assert.ok(node !== undefined);
    const ran = await runInside(node.folder.path, [...args, "--json"], { env: node.env });
    assert.equal(ran.code, 0, ran.stderr + ran.stdout);
    return JSON.parse(ran.stdout);
  }

  const portalCookies = new Map<string, string>();
  async function portal(key: LoadKey, address: string, n = 0): Promise<Fields> {
    const url = nodes[n]?.portalUrl ?? "";
    let cookie = portalCookies.get(`${key.id} ${n}`);
    if (cookie === undefined) {
      const headers = { ...pageHeader, "content-type": "application/json" };
      const body = JSON.stringify({ key: key.secret });
      const signedIn = await fetch(`${url}/api/session`, { method: "POST", headers, body });
      assert.equal(signedIn.status, 200, await signedIn.text());
      cookie = (signedIn.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
      portalCookies.set(`${key.id} ${n}`, cookie);
    }
    const answer = await fetch(`${url}${address}`, { headers: { ...pageHeader, cookie } });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    return fieldsOf(JSON.parse(text));
  }

  test("the load had what the checks are about", async (t) => {
    const endings = Object.groupBy(receipts, ({ ending }) => ending);
    const counts = Object.entries(endings).map(([ending, list]) => `${ending} ${list?.length ?? 0}`);
    const changes = Object.entries(Object.groupBy(load.changes, ({ kind }) => kind));
    t.diagnostic(
      `${load.requests.length} requests, ${receipts.length} receipts (${counts.join(", ")}), ${changes
        .map(([kind, list]) => `${kind} ${list?.length ?? 0}`)
        .join(", ")}, ${load.keys.length} keys`,
    );
    for (const bucket of ["base", "overage", "additional"] as const)
      assert.ok(
        receipts.some((receipt) => receipt[bucket] > 0),
        `${bucket} has paid`,
      );
    for (const ending of ["length", "client_gone"])
      assert.ok(
        receipts.some((receipt) => receipt.ending === ending),
        `an answer ended by ${ending}`,
      );
    const windows = bookOf("minute").entries.filter(
      (entry) => entry.kind === "window" && entry.bucket === "base",
    );
    assert.ok(windows.length >= 2, "a window has ended");
    assert.ok(bookOf("serial").account.additionalSpent > 0, "payments were spent in their order");
    const { account } = bookOf("leaving");
    assert.equal(account.plan, "year", "a planned change took place");
    t.diagnostic(`${await summed()} charges were summed aside`);
  });

  test("each request has one receipt, which says what its client saw", () => {
    const byId = new Map(receipts.map((receipt) => [receipt.id, receipt]));
    assert.equal(byId.size, receipts.length, "no request has two");
    for (const seen of load.requests) compareRequest(seen, byId.get(seen.id ?? ""));
    const unknown = receipts.filter(({ id }) => load.requests.every((seen) => seen.id !== id));
    const left = load.requests.filter(({ id }) => id === null);
    assert.ok(unknown.length <= left.length, "receipts of others are of clients that left before the head");
  });

  function compareRequest(seen: SeenRequest, receipt: Receipt | undefined): void {
    if (seen.id === null) return;
    const text = JSON.stringify({ seen, receipt });
    if (seen.status !== 200) {
      assert.ok(receipt === undefined || receipt.cost === 0, `a refused request costs nothing: ${text}`);
      return;
    }
    assert.ok(receipt !== undefined, text);
    assert.equal(receipt.account, seen.account, text);
    assert.equal(receipt.key, seen.key, text);
    assert.equal(receipt.model, seen.model, text);
    const price = prices[receipt.model];
    const { pricePrompt, priceCompletion, priceCached, prompt, completion, cached } = receipt;
    assert.deepEqual({ prompt: pricePrompt, completion: priceCompletion, cached: priceCached }, price);
    if (seen.isAborted) return;
    assert.deepEqual({ prompt, completion, cached }, seen.usage, text);
    const finish = receipt.ending === "stop" ? "stop" : "length";
    assert.equal(seen.finish, finish, text);
  }

  test("each confirmed change is in the journal once, with its amount", () => {
    for (const { kind, account, id, micro } of load.changes) {
      const found = bookOf(account).entries.filter(({ operation }) => String(operation).endsWith(`:${id}`));
      const shown = found.map((entry) => ({ kind: entry.kind, micro: Number(entry.amount_micro) }));
      // What is taken from several promotions has an entry for each.
      const total = shown.reduce((sum, each) => sum + each.micro, 0);
      if (kind !== "adjust") assert.deepEqual({ id, shown }, { id, shown: [{ kind, micro }] });
      else assert.ok(shown.length >= 1, `${id} is in the journal`);
      if (kind === "adjust") assert.ok(total <= 0 && total >= micro, `${id} took ${total}`);
    }
    const kinds = ["payment", "promotion", "memo", "refund"];
    for (const account of accounts) {
      const posted = bookOf(account).entries.filter(({ kind }) => kinds.includes(String(kind)));
      const known = load.changes.filter(
        (change) => change.account === account && kinds.includes(change.kind),
      );
      assert.equal(posted.length, known.length, `nothing else was added to ${account}`);
    }
  });

  test("balances are what journals and receipts add up to", async () => {
    for (const id of accounts) {
      const { account } = bookOf(id);
      const { base, overage } = account.open;
      assert.ok(base !== null && overage !== null);
      const key = load.keys.find((each) => each.account === id && !each.isRevoked);
      assert.ok(key !== undefined);
      const shown = [
        ...(await Promise.all(
          nodes.map(async (node) => (await load.operator(`/admin/accounts/${id}/balance`, {}, node)).body),
        )),
        ...(await Promise.all(
          nodes.map(async ({ url }) => {
            const headers = { authorization: `Bearer ${key.secret}` };
            return fieldsOf(await (await fetch(`${url}/v1/balance`, { headers })).json());
          }),
        )),
        ...(await Promise.all(
          [0, 1].map(async (n) => fieldsOf((await portal(key, "/api/account", n)).balance)),
        )),
        ...(["serial", "poor"].includes(id) ? [fieldsOf(await cli("balance", id))] : []),
      ];
      for (const balance of shown) {
        const startedMs = Date.parse(String(fieldsOf(balance.baseWindow).startedAt));
        // Nobody has written since a window of a minute ended: nothing is spent of the new one.
        const isNew: boolean = account.plan === "minute" && startedMs > base.fromMs;
        const amount: number = isNew ? 75 * million : base.amount;
        const [spent, most]: [number, number] = isNew ? [0, 0] : [base.spent, base.spentMost];
        if (!rolling.includes(id)) assert.equal(spent, most, `${id}: it is known which window paid`);
        const overageShown = shareOf(overage.amount - overage.spent, overage.amount);
        const additional = { credits: Math.floor(account.additionalLeft() / million) };
        const { balances } = balance;
        const found = fieldsOf(balances);
        const foundBase = fieldsOf(found.base);
        const [highest, lowest] = [shareOf(amount - spent, amount), shareOf(amount - most, amount)];
        assert.ok(Number(foundBase.percent) <= highest.percent, `${id}: base ${String(foundBase.percent)} %`);
        assert.ok(Number(foundBase.percent) >= lowest.percent, `${id}: base ${String(foundBase.percent)} %`);
        if (spent === most) assert.deepEqual(foundBase, highest, id);
        assert.deepEqual(
          { overage: found.overage, additional: found.additional },
          { overage: overageShown, additional },
          id,
        );
        assert.equal(
          fieldsOf(found.total).credits,
          Number(foundBase.credits) + overageShown.credits + additional.credits,
        );
        assert.deepEqual(fieldsOf(balance.caps).base, { credits: amount / million });
        assert.equal(balance.plan, account.plan);
      }
    }
  });

  test("payments are what was added, spent and refunded", async () => {
    const month = new Date(receipts.at(-1)?.atMs ?? 0).toISOString().slice(0, 7);
    const report = fieldsOf(await cli("credits", "report", "--month", month));
    const rows = listOf(report.payments);
    const total = { added: 0, spent: 0, refunded: 0, left: 0 };
    for (const id of accounts) {
      const { account } = bookOf(id);
      const paid = account.additional().filter(({ kind }) => kind === "payment");
      const refunds = bookOf(id).entries.filter(({ kind }) => kind === "refund");
      const [listed, same] = await Promise.all(
        nodes.map((node) => load.list(`/admin/accounts/${id}/payments`, node)),
      );
      assert.deepEqual(listed, same);
      assert.equal(listed?.length, paid.length, id);
      // With one request after the other, grants pay in their order.
      let spentLeft = account.additionalSpent;
      let spentByPayments = 0;
      for (const grant of paid) {
        const refunded = refunds
          .filter((entry) => entry.grant === grant.seq)
          .reduce((sum, entry) => sum - Number(entry.amount_micro), 0);
        const payment_id = String(grant.operation).replace(/^payment:/, "");
        const shown: Fields | undefined = listed?.find((row) => row.payment_id === payment_id);
        const added = grant.amount + refunded;
        assert.deepEqual(
          [shown?.amount_micro, shown?.refunded_micro, shown?.journal_seq],
          [added, refunded, grant.seq],
          payment_id,
        );
        const row = rows.find((each) => each.payment_id === payment_id);
        assert.ok(row !== undefined, payment_id);
        assert.equal(row.account, id);
        assert.equal(Number(row.left_before_micro) + Number(row.added_micro), added, payment_id);
        assert.equal(row.refunded_micro, refunded, payment_id);
        assert.ok(Number(row.left_micro) >= 0, payment_id);
        assert.equal(row.left_micro, added - refunded - Number(row.spent_micro), payment_id);
        if (id === "serial") {
          const spent = Math.min(grant.amount, spentLeft);
          spentLeft -= spent;
          assert.equal(row.spent_micro, spent, payment_id);
        }
        spentByPayments += Number(row.spent_micro);
        total.added += added;
        total.spent += Number(row.spent_micro);
        total.refunded += refunded;
        total.left += Number(row.left_micro);
      }
      const others = account.additional().filter(({ kind }) => kind !== "payment");
      const most = others.reduce((sum, { amount }) => sum + amount, 0);
      const byOthers = account.additionalSpent - spentByPayments;
      assert.ok(byOthers >= 0 && byOthers <= most, `${id}: promotions paid ${byOthers} of ${most}`);
    }
    assert.equal(rows.length, load.changes.filter(({ kind }) => kind === "payment").length);
    const { left_before_micro, added_micro, spent_micro, refunded_micro, left_micro } = fieldsOf(
      report.total,
    );
    const found = {
      added: Number(left_before_micro) + Number(added_micro),
      spent: spent_micro,
      refunded: refunded_micro,
      left: left_micro,
    };
    assert.deepEqual(found, total);
  });

  /** Compares the rows and the total of a report with receipts in groups. */
  function compareSums(report: Fields, by: string, of: readonly Receipt[]): void {
    const groups = Map.groupBy(of, (receipt) => groupOf(receipt, by));
    const rows = listOf(report.data);
    const columns = Object.keys(sumOf([]));
    const only = (row: Fields) => Object.fromEntries(columns.map((column) => [column, row[column]]));
    const found = Object.fromEntries(rows.map((row) => [String(row[by]), only(row)]));
    const expected = Object.fromEntries([...groups].map(([name, list]) => [name, sumOf(list)]));
    assert.deepEqual(found, expected, `by ${by}`);
    if (report.total !== undefined)
      assert.deepEqual(only(fieldsOf(report.total)), sumOf(of), `by ${by}: total`);
  }

  function groupOf({ atMs, model, key, account }: Receipt, by: string): string {
    if (by === "day") return new Date(atMs).toISOString().slice(0, 10);
    if (by === "hour") return new Date(Math.floor(atMs / hourMs) * hourMs).toISOString();
    return by === "model" ? model : by === "key" ? key : account;
  }

  test("sums by day, model, key and account are those of the receipts", async () => {
    const filters: Partial<Receipt>[] = [
      {},
      { model: "dear" },
      { account: "poor", model: "plain" },
      ...accounts.map((account) => ({ account })),
      ...load.keys.map(({ id }) => ({ key: id })),
    ];
    for (const [n, filter] of filters.entries()) {
      const query = Object.entries(filter).map(([name, value]) => `&${name}=${String(value)}`);
      for (const by of ["day", "model", "key", "account"]) {
        const address = `/admin/usage/sums?by=${by}&limit=100${query.join("")}`;
        const { body } = await load.operator(address, {}, nodes[n % 2]);
        assert.equal(body.next, null);
        compareSums(body, by, receiptsOf(filter));
      }
      const hours = await load.operator(`/admin/usage/hours?hours=3${query.join("")}`, {}, nodes[n % 2]);
      compareSums(hours.body, "hour", receiptsOf(filter));
      const byModel = await load.operator(
        `/admin/usage/hours?hours=3&by=model${query.join("")}`,
        {},
        nodes[n % 2],
      );
      for (const model of models) {
        const data = listOf(byModel.body.data).filter((row) => row.model === model);
        const own = receiptsOf(filter).filter((receipt) => receipt.model === model);
        compareSums({ data }, "hour", own);
      }
    }
    compareSums(fieldsOf(await cli("usage", "--by", "account")), "account", receipts);
    compareSums(fieldsOf(await cli("usage", "--hours", "3")), "hour", receipts);
    assert.deepEqual(listOf(await cli("usage", "mixed")).map(receiptOf), receiptsOf({ account: "mixed" }));
  });

  test("caps of keys have left what their receipts leave", async () => {
    for (const { id } of load.keys) {
      const shown = await Promise.all(
        nodes.map(async (node) => (await load.operator(`/admin/keys/${id}`, {}, node)).body),
      );
      assert.deepEqual(shown[0], shown[1]);
      const [cap] = listOf(shown[0]?.spending_caps);
      if (cap === undefined) continue;
      const { credits, spent_micro, left_micro, held_micro } = cap;
      // A changed amount keeps what was spent, and none of the periods has ended.
      const { base_micro, overage_micro, additional_micro } = sumOf(receiptsOf({ key: id }));
      const spent = base_micro + overage_micro + additional_micro;
      const left = Math.max(0, Number(credits) * million - spent);
      assert.deepEqual(
        { spent_micro, left_micro, held_micro },
        { spent_micro: spent, left_micro: left, held_micro: 0 },
        id,
      );
      assert.ok(spent <= Number(credits) * million, `${id} has spent no more than its cap`);
    }
  });

  test("the metrics of both nodes add up to the receipts", async () => {
    const series = await Promise.all(nodes.map(metricsOf));
    const found = (name: string, labels: Readonly<Record<string, string>>) =>
      series
        .flat()
        .filter((sample) => sample.name === `inkwell_${name}`)
        .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
        .reduce((sum, { value }) => sum + value, 0);
    const inMicro = (credits: number) => Math.round(credits * million);
    for (const model of models) {
      const { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens } = sumOf(
        receiptsOf({ model }),
      );
      const tokens = {
        prompt: prompt_tokens - cached_tokens,
        cached_prompt: cached_tokens,
        completion: completion_tokens - reasoning_tokens,
        reasoning: reasoning_tokens,
      };
      for (const [kind, count] of Object.entries(tokens))
        assert.equal(found("tokens_total", { model, kind }), count, `${model} ${kind}`);
      for (const ending of new Set(receipts.map((receipt) => receipt.ending))) {
        const count = receiptsOf({ model, ending }).length;
        assert.equal(found("settled_requests_total", { model, ending }), count, `${model} ${ending}`);
      }
    }
    assert.equal(found("settled_requests_total", {}), receipts.length);
    for (const bucket of ["base", "overage", "additional"] as const) {
      for (const ending of new Set(receipts.map((receipt) => receipt.ending))) {
        const micro = sumOf(receiptsOf({ ending }))[`${bucket}_micro`];
        assert.equal(
          inMicro(found("charged_credits_total", { bucket, ending })),
          micro,
          `${bucket} ${ending}`,
        );
      }
    }
    assert.equal(inMicro(found("shortfall_credits_total", {})), sumOf(receipts).shortfall_micro);
    assert.equal(found("unsettled_requests_total", {}), 0);
    for (const name of ["open_holds", "held_credits", "late_charges"]) assert.equal(found(name, {}), 0, name);
    const refused = load.requests.filter(({ status, code }) => status !== 200 && code !== null);
    const unknown = load.requests.filter(({ id }) => id === null).length;
    for (const code of new Set(refused.map((seen) => seen.code ?? ""))) {
      const seen = refused.filter((each) => each.code === code).length;
      const counted = found("requests_total", { endpoint: "/v1/chat/completions", code });
      assert.ok(counted >= seen && counted <= seen + unknown, `${counted} refused by ${code}, ${seen} seen`);
    }
    const all = found("requests_total", { endpoint: "/v1/chat/completions" });
    assert.ok(all <= load.requests.length && all >= load.requests.length - unknown, `${all} requests`);
  });

  test("the portal shows holders of keys their own receipts, sums and caps", async () => {
    for (const [n, key] of load.keys.filter(({ isRevoked }) => !isRevoked).entries()) {
      const { account, key: shownKey, rights } = await portal(key, "/api/account", n % 2);
      assert.equal(account, key.account);
      const seesAll = fieldsOf(rights).keys === "account";
      const own = receiptsOf(seesAll ? { account: key.account } : { key: key.id });
      const { body } = await load.operator(`/admin/keys/${key.id}`);
      assert.deepEqual(fieldsOf(shownKey).spending_caps, body.spending_caps);
      const rows: Receipt[] = [];
      for (let after = ""; ; ) {
        const page = await portal(key, `/api/requests?limit=100${after}`, n % 2);
        rows.push(...listOf(page.data).map(receiptOf));
        if (typeof page.next !== "string") break;
        after = `&after=${encodeURIComponent(page.next)}`;
      }
      const inOrder = (list: readonly Receipt[]) => list.toSorted((one, other) => one.seq - other.seq);
      assert.deepEqual(inOrder(rows), inOrder(own), key.id);
      for (const by of seesAll ? ["day", "model", "key"] : ["day", "model"])
        compareSums(await portal(key, `/api/usage?by=${by}`, n % 2), by, own);
      compareSums(await portal(key, "/api/usage/hours?hours=3", n % 2), "hour", own);
    }
  });

  test("the audit finds nothing", async () => {
    const audit = fieldsOf(await cli("audit"));
    assert.deepEqual({ sound: audit.sound, broken: audit.broken }, { sound: true, broken: [] });
  });
});

interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** The samples of the text format of Prometheus. */
function samplesOf(text: string): Sample[] {
  return text.split("\n").flatMap((line) => {
    const [, name, labels = "", value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined) return [];
    const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, of]) => [
      String(label),
      String(of),
    ]);
    return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }];
  });
}
