/**
 * The operator of `torture-kill.ts`: changes plans, writes and reloads configuration files,
 * refunds payments, rotates a key and changes its caps, suspends and resumes the account, one
 * change after the other.
 *
 * Every change has an operation id. One whose result a kill hid is sent again after the restart,
 * and so are some that were acknowledged. The ledger must show that each took effect once.
 */
import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { ask } from "../test/fixtures/http-stream.ts";
import { modelsYaml, type Program, type Up } from "../test/fixtures/program.ts";
import type { TorturedLedger } from "./torture-ledger.ts";

export const operatorToken = "operator-token-0123456789";

type Fields = Record<string, unknown>;

interface Change {
  id: string;
  kind: "plan" | "state" | "refund" | "key";
  method: "POST" | "PATCH";
  path: string;
  body: Fields;
  /** Null until the service has confirmed it. */
  answer: Fields | null;
}

const lastingPlans = ["starter", "quick", "monthly"];
const capPeriods = ["PT1M", "P1D", "P1M"];
/** Credits of `starter` in broken files. They never become a version. */
const brokenCredits = 900_000;

export class Operator {
  readonly #events: string;
  readonly #folder: string;
  readonly #ledger: TorturedLedger;
  readonly #random: () => number;
  readonly #changes: Change[] = [];
  #made = 0;
  /** Payments in the ledger, in micro-credits that may still be refunded. */
  readonly #refundable = new Map<string, number>();
  /** Numbers of the files that a reload has confirmed. */
  readonly #reloaded = new Set<number>();
  #file = 0;
  #hasTemporaryPlan = false;
  /** Until then no plan is changed, so that a scheduled change takes effect. */
  #keepsPlanUntilMs = 0;
  #account = "";
  #teamKey = "";
  #service: Program | null = null;
  #up: Up | null = null;
  /** Secret of the key that is rotated. */
  secret = "";
  /** True while a rotation has no known result. */
  isRotating = false;
  readonly #done = { reloads: 0, brokenFiles: 0, repetitions: 0, scheduled: 0 };

  /** `events`: a further section of the configuration. */
  constructor(folder: string, ledger: TorturedLedger, random: () => number, events: string) {
    this.#events = events;
    this.#folder = folder;
    this.#ledger = ledger;
    this.#random = random;
  }

  /** Writes the configuration that is to be in use. */
  async writeConfiguration(): Promise<void> {
    await this.#write(this.#yaml(this.#file));
  }

  /** Meets the service after its start: sends again what has no known result, and some others. */
  async meet(service: Program, up: Up): Promise<void> {
    this.#service = service;
    this.#up = up;
    if (this.#account === "") await this.#issueTeamKey();
    for (const change of this.#changes.filter(({ answer }) => answer === null)) await this.#send(change);
    const known = this.#changes.at(Math.floor(this.#random() * this.#changes.length));
    if (known !== undefined) await this.#repeat(known);
    await this.#assertSecret();
    if (await this.#isSuspended()) await this.#setState("active");
  }

  /** Makes changes until the service is killed. */
  async work(killed: AbortSignal): Promise<void> {
    const steps = [
      () => this.#changePlan("now"),
      () => this.#changePlan("refresh"),
      () => this.#goAndComeBack(),
      () => this.#reload("POST"),
      () => this.#reload("SIGHUP"),
      () => this.#retirePlanInUse(),
      () => this.#reloadBrokenFile(),
      () => this.#refund(),
      () => this.#rotate(),
      () => this.#setCaps(),
      () => this.#suspendAndResume(),
    ];
    try {
      while (!killed.aborted) await this.#pick(steps)();
    } catch (error) {
      if (!killed.aborted || !isBroken(error)) throw error;
    }
  }

  /** The ledger has this payment, so it may be refunded. */
  paid(payment: string, micro: number): void {
    if (!this.#refundable.has(payment)) this.#refundable.set(payment, micro);
  }

  /** Sends every change of the whole run again. None may have an effect. */
  async repeatAll(): Promise<void> {
    for (const change of this.#changes) await this.#repeat(change);
    await this.#assertSecret();
  }

  /** Checks that the ledger has every acknowledged change once, and nothing that was not sent. */
  async assertChanges(): Promise<void> {
    const posted = await this.#posted();
    assert.equal(new Set(posted).size, posted.length, "a change took effect twice");
    const sent = new Set(this.#changes.map(opOf));
    for (const op of posted) assert.ok(sent.has(op), `${op} was never sent`);
    const journal = new Set(posted);
    const sql =
      "select e.op, g.payment, e.amount from journal e join credit_grant g on g.account = e.account and g.seq = e.grant_seq where e.kind = 'refund'";
    const refunds = new Map((await this.#ledger.query(sql)).map((row) => [String(row.op), row]));
    for (const change of this.#changes) {
      if (change.answer === null) continue;
      assert.ok(journal.has(opOf(change)), `${opOf(change)} was acknowledged`);
      if (change.kind !== "refund") continue;
      const { payment, amount } = refunds.get(opOf(change)) ?? {};
      const expected = { payment: change.body.payment_id, amount: 0 - Number(change.answer.refunded_micro) };
      assert.deepEqual({ payment, amount }, expected, change.id);
    }
    await this.#assertAccount();
    await this.#assertFiles();
  }

  /** Returns how often each kind of change was made. */
  summary(): string {
    const kinds = new Map<string, number>();
    for (const { kind } of this.#changes) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const { reloads, brokenFiles, repetitions, scheduled } = this.#done;
    const counts = [...kinds].map(([kind, times]) => `${kind} ${times}`).join(", ");
    return `Changes: ${counts}; ${reloads} reloads, ${brokenFiles} broken files, ${repetitions} repetitions; ${scheduled} scheduled changes took effect. Each took effect once.`;
  }

  /** Checks that plan, state and caps are those that the last changes in the journal set. */
  async #assertAccount(): Promise<void> {
    const [account] = await this.#ledger.query("select id, plan, next_plan, state from account");
    assert.ok(account !== undefined, "the account exists");
    const entries = await this.#ledger.query(
      "select kind, op, after from journal where account = ? and kind in ('open', 'plan', 'suspend', 'resume', 'key') order by seq",
      String(account.id),
    );
    let plan = "";
    let next_plan: string | null = null;
    let state = "active";
    let caps: unknown = null;
    this.#done.scheduled = 0;
    for (const { kind, op, after } of entries) {
      const set = JSON.parse(String(after));
      if (kind === "suspend") state = "suspended";
      else if (kind === "resume") state = "active";
      else if (kind === "key") caps = capsOf(set) ?? caps;
      else if (set.at === "refresh") next_plan = set.plan === plan ? null : set.plan;
      else {
        plan = set.plan;
        next_plan = null;
      }
      // Posted by the ledger at the end of the window.
      if (kind === "plan" && op === null) this.#done.scheduled += 1;
    }
    const shown = { plan: account.plan, next_plan: account.next_plan, state: account.state };
    assert.deepEqual(shown, { plan, next_plan, state }, "the account is as its last changes left it");
    const [key] = await this.#ledger.query("select caps from api_key where id = ?", this.#teamKey);
    if (caps !== null) {
      // PostgreSQL parses JSON itself.
      const rows = typeof key?.caps === "string" ? JSON.parse(key.caps) : key?.caps;
      // Name, period, alignment, zone and amount.
      const found = rows.map(([, every, , , micro]: unknown[]) => ({
        micro,
        every,
      }));
      assert.deepEqual(found, caps, "the last caps");
    }
  }

  /** Checks that confirmed files are versions in the database, and broken ones are not. */
  async #assertFiles(): Promise<void> {
    const rows = await this.#ledger.query("select base_credits from plan_version where plan = 'starter'");
    const credits = rows.map((row) => Number(row.base_credits));
    assert.equal(new Set(credits).size, credits.length, "a file made two versions");
    for (const file of this.#reloaded) assert.ok(credits.includes(starterCredits(file)), `file ${file}`);
    assert.ok(Math.max(...credits) <= starterCredits(this.#file), "a broken file was applied");
  }

  async #posted(): Promise<string[]> {
    const sql = "select op from journal where op like '%:change-%' order by account, seq";
    return (await this.#ledger.query(sql)).map(({ op }) => String(op));
  }

  async #isSuspended(): Promise<boolean> {
    const [account] = await this.#ledger.query("select state from account");
    return account?.state === "suspended";
  }

  async #issueTeamKey(): Promise<void> {
    const [account] = await this.#ledger.query("select id from account");
    this.#account = String(account?.id);
    const body = { operation_id: "team", spending_caps: [{ credits: 1000, every: "PT1M" }] };
    const { status, fields } = await this.#ask("POST", `/admin/accounts/${this.#account}/keys`, body);
    assert.equal(status, 201);
    this.#teamKey = String(fields.id);
    this.secret = String(fields.key);
  }

  /** Checks that the known secret is valid: a rotation that ran twice would have ended it. */
  async #assertSecret(): Promise<void> {
    const headers = { authorization: `Bearer ${this.secret}` };
    const response = await fetch(`${this.#up?.url}/v1/balance`, { headers });
    assert.equal(response.status, 200, await response.text());
  }

  async #changePlan(at: "now" | "refresh", plan = this.#pick(this.#offered())): Promise<void> {
    if (Date.now() < this.#keepsPlanUntilMs) return;
    const [account] = await this.#ledger.query("select base_until_ms from account");
    const endsMs = Number(account?.base_until_ms);
    if (at === "refresh" && endsMs < Date.now() + 10_000) this.#keepsPlanUntilMs = endsMs;
    await this.#make("plan", "PATCH", `/admin/accounts/${this.#account}`, { plan, at });
  }

  async #goAndComeBack(): Promise<void> {
    const [account] = await this.#ledger.query("select plan from account");
    const present = String(account?.plan);
    await this.#changePlan("now", this.#pick(this.#offered().filter((plan) => plan !== present)));
    if (this.#offered().includes(present)) await this.#changePlan("now", present);
  }

  async #reload(how: "POST" | "SIGHUP", hasTemporaryPlan = this.#random() < 0.5): Promise<void> {
    this.#file += 1;
    this.#hasTemporaryPlan = hasTemporaryPlan;
    await this.writeConfiguration();
    if (how === "POST") {
      const { status, fields } = await this.#ask("POST", "/admin/reload");
      assert.equal(status, 200, JSON.stringify(fields));
    } else {
      const before = await this.#lastReload();
      this.#service?.process.kill("SIGHUP");
      while ((await this.#lastReload()) === before);
    }
    const sql = "select version from plan_version where plan = 'starter' and base_credits = ?";
    const versions = await this.#ledger.query(sql, starterCredits(this.#file));
    assert.equal(versions.length, 1, "the file is in use");
    this.#reloaded.add(this.#file);
    this.#done.reloads += 1;
  }

  /** Returns time and result. Throws if the service was killed meanwhile. */
  async #lastReload(): Promise<string> {
    const { fields } = await this.#ask("GET", "/readyz");
    return JSON.stringify(fields.last_reload);
  }

  async #retirePlanInUse(): Promise<void> {
    if (!this.#hasTemporaryPlan) await this.#reload("POST", true);
    await this.#changePlan("now", "temporary");
    await this.#reload("POST", false);
  }

  async #reloadBrokenFile(): Promise<void> {
    const broken = this.#yaml(brokenCredits + this.#file).replace("every: P1M", "every: P0M");
    await this.#write(broken);
    try {
      const { status, fields } = await this.#ask("POST", "/admin/reload");
      assert.equal(status, 422, JSON.stringify(fields));
      this.#done.brokenFiles += 1;
    } finally {
      await this.writeConfiguration();
    }
  }

  async #refund(): Promise<void> {
    const payments = [...this.#refundable].filter(([, micro]) => micro >= 1_000_000);
    const [payment, leftMicro = 0] = payments[Math.floor(this.#random() * payments.length)] ?? [];
    if (payment === undefined) return;
    const credits = Math.min(1 + Math.floor(this.#random() * 2000), Math.floor(leftMicro / 1_000_000));
    const id = this.#newId();
    await this.#add({
      id,
      kind: "refund",
      method: "POST",
      path: `/admin/accounts/${this.#account}/refunds`,
      body: { refund_id: id, payment_id: payment, credits },
    });
  }

  async #rotate(): Promise<void> {
    await this.#make("key", "POST", `/admin/keys/${this.#teamKey}/rotate`, { overlap: "P1D" });
  }

  async #setCaps(): Promise<void> {
    const spending_caps = capPeriods
      .slice(Math.floor(this.#random() * capPeriods.length))
      .map((every) => ({ credits: 500 + Math.floor(this.#random() * 5000), every }));
    await this.#make("key", "PATCH", `/admin/keys/${this.#teamKey}`, { spending_caps });
  }

  async #suspendAndResume(): Promise<void> {
    await this.#setState("suspended");
    const { status } = await ask({ url: this.#up?.url ?? "", key: this.secret });
    assert.equal(status, 403, "a request of a suspended account");
    await this.#setState("active");
  }

  async #setState(state: "active" | "suspended"): Promise<void> {
    await this.#make("state", "POST", `/admin/accounts/${this.#account}/state`, { state });
  }

  async #make(kind: Change["kind"], method: Change["method"], address: string, body: Fields): Promise<void> {
    const id = this.#newId();
    await this.#add({ id, kind, method, path: address, body: { operation_id: id, ...body } });
  }

  #newId(): string {
    this.#made += 1;
    return `change-${this.#made}`;
  }

  async #add(given: Omit<Change, "answer">): Promise<void> {
    const change = { ...given, answer: null };
    this.#changes.push(change);
    await this.#send(change);
  }

  async #send(change: Change): Promise<void> {
    const isRotation = change.path.endsWith("/rotate");
    if (isRotation) this.isRotating = true;
    let { status, fields } = await this.#ask(change.method, change.path, change.body);
    if (change.body.at === "now" && status === 409) {
      assert.match(JSON.stringify(fields), /window_differs/);
      change.body.at = "new_window";
      ({ status, fields } = await this.#ask(change.method, change.path, change.body));
    }
    if (change.kind === "refund" && status === 409) {
      // Requests have spent these credits.
      assert.match(JSON.stringify(fields), /refund_too_large/);
      this.#changes.splice(this.#changes.indexOf(change), 1);
      return;
    }
    assert.equal(status, 200, `${JSON.stringify(change)}: ${JSON.stringify(fields)}`);
    if (change.kind === "refund") this.#tookBack(change, fields);
    if (isRotation && typeof fields.key === "string") this.secret = fields.key;
    if (isRotation) this.isRotating = false;
    if (isRotation && change.answer !== null)
      assert.equal(fields.key, null, `${change.id} made a secret again`);
    change.answer = fields;
  }

  #tookBack({ body, answer }: Change, fields: Fields): void {
    const payment = String(body.payment_id);
    const more = Number(fields.refunded_micro) - Number(answer?.refunded_micro ?? 0);
    this.#refundable.set(payment, (this.#refundable.get(payment) ?? 0) - more);
  }

  /** Sends an acknowledged change again. */
  async #repeat(change: Change): Promise<void> {
    const before = await this.#posted();
    await this.#send(change);
    assert.deepEqual(await this.#posted(), before, `${change.id} had an effect again`);
    this.#done.repetitions += 1;
  }

  async #ask(method: string, address: string, body?: Fields): Promise<{ status: number; fields: Fields }> {
    const headers = new Headers({ authorization: `Bearer ${operatorToken}` });
    if (body !== undefined) headers.set("content-type", "application/json");
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const response = await fetch(`${this.#up?.operatorUrl}${address}`, { method, headers, ...sent });
    const fields: Fields = JSON.parse(await response.text());
    return { status: response.status, fields };
  }

  #offered(): string[] {
    return this.#hasTemporaryPlan ? [...lastingPlans, "temporary"] : lastingPlans;
  }

  /** Payments are sent meanwhile by programs that read it. In half of it, events are off. */
  async #write(text: string): Promise<void> {
    const file = path.join(this.#folder, "inkwell.yaml");
    await writeFile(`${file}.new`, text);
    await rename(`${file}.new`, file);
  }

  /** Every file has other credits and limits, so that none is like one before. */
  #yaml(file: number): string {
    const temporary =
      "  temporary:\n    base: { credits: 700, every: PT1H }\n    overage: { credits: 0, every: P1D }\n";
    return `plans:
  starter:
    base: { credits: ${starterCredits(file)}, every: P1D }
    overage: { credits: 3000, every: P1M }
    limits: { requests_per_minute: ${5000 + file} }
  quick:
    base: { credits: ${100 + (Math.floor(file / 5) % 50)}, every: PT1M }
    overage: { credits: 200, every: P1D }
  monthly:
    base: { credits: 4000, every: P1M }
    overage: { credits: ${200 + Math.floor(file / 10)}, every: PT1M }
${this.#hasTemporaryPlan ? temporary : ""}${this.#events}${modelsYaml()}`;
  }

  #pick<T>(values: readonly T[]): T {
    const value = values[Math.floor(this.#random() * values.length)];
    assert.ok(value !== undefined);
    return value;
  }
}

function starterCredits(file: number): number {
  return 3000 + file;
}

function opOf({ kind, id }: Change): string {
  return `${kind === "refund" ? kind : "operation"}:${id}`;
}

/** The caps that an entry of a key set, or null. */
function capsOf({ caps }: { caps?: { amount_micro: number; every: string }[] }): unknown {
  return caps?.map(({ amount_micro: micro, every }) => ({ micro, every })) ?? null;
}

/** Reports whether a connection broke, as it does when the service is killed. */
function isBroken(error: unknown): boolean {
  return error instanceof TypeError && ["fetch failed", "terminated"].includes(error.message);
}
