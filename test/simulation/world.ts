/**
 * A simulated world: one to three processes of the service on one database, model servers, clients
 * and operators, with everything that can go wrong between them. The same seed gives the same
 * world, event by event.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventSettingsOf } from "../../src/config/events.ts";
import { loadConfig } from "../../src/config/load.ts";
import type { Plans } from "../../src/ledger/plan.ts";
import { overdueMax } from "../../src/ledger/snapshot.ts";
import { recordEveryMs } from "../../src/store/clock.ts";
import { hour, minute, second } from "../fixtures/times.ts";
import { Checks } from "./checks.ts";
import { Clients } from "./clients.ts";
import { ClockFate } from "./clock-fate.ts";
import { configurationOf, eventsOf, operatorPort, plansOf, token } from "./configuration.ts";
import { type DatabaseFaults, SimulatedDatabase } from "./database.ts";
import { DirectProgram, pauseOfProgramMs } from "./direct-program.ts";
import { Fairness } from "./fairness.ts";
import { FrontEnd } from "./front-ends.ts";
import { type Answered, type Request, send } from "./http-client.ts";
import { SimulatedNode } from "./node.ts";
import { drawChange } from "./operator-changes.ts";
import { Random } from "./random.ts";
import { SimulatedReceivers } from "./receivers.ts";
import { SimulatedSocket } from "./sockets.ts";
import { Timeline } from "./timeline.ts";
import { SimulatedUpstreams, type UpstreamHabits } from "./upstreams.ts";

/** What can go wrong, or change, in a world. */
export const troubles = [
  "clock",
  "crashes",
  "restarts",
  "database",
  "calls",
  "servers",
  "clients",
  "operators",
  "receivers",
];
export type Trouble = (typeof troubles)[number];

export interface WorldOptions {
  seed: number;
  requests: number;
  /** Simulated time over which the requests are spread. */
  hours: number;
  /** Troubles that this world does not have. */
  without?: readonly Trouble[];
}

export interface SimulationResult {
  events: number;
  commits: number;
  /** Of everything that was committed and answered. */
  digest: string;
  /** How often each outcome was seen. */
  outcomes: ReadonlyMap<string, number>;
}

/** A violation, with what finds it again. */
export class SimulationError extends Error {
  constructor(seed: number, nowMs: number, cause: unknown) {
    const what = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    super(`seed ${seed}, at ${new Date(nowMs).toISOString()}: ${what}`, { cause });
  }
}

const accountCount = 6;
/** So often in each world, however long, rows are changed by hand: this reads all facts. */
const tamperings = 30;
/** A database that loses calls cannot refuse so many starts in a row. */
const startsMax = 100;
/** Before changes of the clocks in Europe, at the end of a short month, in the middle of one. */
const starts = [
  Date.UTC(2030, 0, 17, 12),
  Date.UTC(2030, 2, 30, 22),
  Date.UTC(2030, 9, 26, 21),
  Date.UTC(2032, 1, 28, 20),
];

class World {
  readonly bundle: string;
  readonly options: WorldOptions;
  readonly random: Random;
  readonly startMs: number;
  readonly timeline: Timeline;
  readonly database: SimulatedDatabase;
  readonly upstreams: SimulatedUpstreams;
  readonly receivers: SimulatedReceivers;
  readonly checks: Checks;
  /** Without its plans. */
  readonly #configuration: string;
  readonly turnMs: number;
  readonly #folder = mkdtempSync(join(tmpdir(), "inkwell-simulation-"));
  readonly #nodes: SimulatedNode[] = [];
  readonly #payments: { account: string; id: string }[] = [];
  readonly #plans: Plans;
  #networkMs: number;
  #count = 0;
  #isOver = false;
  /** Some process has been up since then. */
  #upSinceMs: number;
  #failure: unknown = null;
  /** The clock of the database steps. */
  readonly #hasClockFaults: boolean;
  readonly #clockFate: ClockFate;
  readonly clockEveryMs: number;
  readonly #fairness: Fairness;
  readonly #frontEnd: FrontEnd | null;
  readonly #clients: Clients;

  constructor(bundle: string, options: WorldOptions) {
    this.bundle = bundle;
    this.options = options;
    this.random = new Random(options.seed);
    this.startMs = this.random.pick(starts);
    this.#upSinceMs = this.startMs;
    this.timeline = new Timeline(this.startMs);
    const { random, timeline } = this;
    this.#hasClockFaults = random.chance(0.4) && this.#has("clock");
    this.clockEveryMs = this.#hasClockFaults ? recordEveryMs : minute;
    this.#configuration = configurationOf(random) + eventsOf(random);
    const configuration = this.#configuration + plansOf(random, { hasLarge: true });
    const nodes = random.pick([1, 2, 3]);
    for (let number = 1; number <= nodes; number += 1) {
      const node = new SimulatedNode(number, this, mkdtempSync(join(this.#folder, `node-${number}-`)));
      writeFileSync(node.configuration, configuration);
      this.#nodes.push(node);
    }
    this.#networkMs = random.pick([1, 20]);
    this.turnMs = random.pick([0, 0, 0.2]);
    const faults: DatabaseFaults = random.pick([
      { refused: 0, lost: 0, locked: 0, overdueMax, networkMs: 1, diskMs: 2 },
      { refused: 0.002, lost: 0.002, locked: 0.01, overdueMax: 1, networkMs: 1, diskMs: 5 },
      { refused: 0.02, lost: 0.04, locked: 0.03, overdueMax: 2, networkMs: 5, diskMs: 30 },
    ]);
    const habits: UpstreamHabits = random.pick([
      { ...goodHabits },
      { ...goodHabits, breaksOff: 4, respondsWithError: 4, refusesConnection: 2, hangs: 1, endsEarly: 1 },
      { ...goodHabits, lies: 10, runsOn: 10, staysSilent: 1, breaksOff: 5 },
    ]);
    if (!this.#has("calls")) Object.assign(faults, { refused: 0, lost: 0, locked: 0 });
    if (!this.#has("servers")) Object.assign(habits, goodHabits);
    const file = join(this.#folder, "inkwell.yaml");
    writeFileSync(file, configuration);
    const { plans, events } = loadConfig({ cwd: this.#folder, file, env: {} });
    this.#plans = plans;
    this.checks = new Checks(plans, {
      startMs: this.startMs,
      isTruthful: habits.lies === 0,
      overdueMax: faults.overdueMax,
    });
    const listener = {
      committed: (commit: Parameters<Checks["committed"]>[0]) =>
        this.#check(() => {
          this.checks.committed(commit, this.database);
          this.#clockFate.check(commit.times);
        }),
      opened: (...given: Parameters<Checks["opened"]>) => this.checks.opened(...given),
      applied: (...given: Parameters<Checks["applied"]>) => this.checks.applied(...given),
      failed: (error: unknown) => {
        this.#failure ??= error;
      },
    };
    this.database = new SimulatedDatabase({
      timeline,
      random: random.fork(),
      faults,
      plans,
      events: eventSettingsOf(events),
      listener,
    });
    this.#fairness = new Fairness(timeline);
    const upstreamListener = {
      began: (mark: string) => this.#check(() => this.#fairness.began(mark)),
      ended: (mark: string) => this.#fairness.ended(mark),
    };
    this.upstreams = new SimulatedUpstreams({
      timeline,
      random: random.fork(),
      habits,
      listener: upstreamListener,
    });
    this.receivers = new SimulatedReceivers({
      timeline,
      random: random.fork(),
      events,
      database: this.database,
      hasTrouble: this.#has("receivers"),
      fail: listener.failed,
      count: (outcome) => this.checks.count(outcome),
    });
    this.#frontEnd = random.chance(0.6) ? new FrontEnd(random.fork()) : null;
    this.#clients = new Clients({
      ...options,
      timeline,
      checks: this.checks,
      database: this.database,
      nodes: this.#nodes,
      fairness: faults.lost > 0 ? null : this.#fairness,
      frontEnd: this.#frontEnd,
      hasTrouble: this.#has("clients"),
      connect: this.#connect.bind(this),
      check: this.#check.bind(this),
    });
    const clockWorld = {
      timeline,
      clock: this.database.clock,
      nodes: this.#nodes,
      ask: this.#insist.bind(this),
      startAgain: (node: SimulatedNode) => this.#startAgain(node),
      count: (outcome: string) => this.checks.count(outcome),
    };
    this.#clockFate = new ClockFate(clockWorld, random.fork());
  }

  #has(trouble: Trouble): boolean {
    return this.options.without?.includes(trouble) !== true;
  }

  /** Keeps the first violation: the program would turn an exception into a failed commit. */
  #check(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#failure ??= error;
      throw error;
    }
  }

  async run(): Promise<SimulationResult> {
    const { seed, hours } = this.options;
    // The program handles every rejection.
    const fail = (error: unknown) => {
      this.#failure ??= error;
    };
    process.on("unhandledRejection", fail);
    try {
      const life = this.#live().catch((error: unknown) => {
        this.#failure ??= error;
      });
      const endMs = this.startMs + (10 * hours + 24) * hour;
      await this.timeline.run(() => this.#isOver || this.#failure !== null || this.timeline.nowMs > endMs);
      if (this.#failure !== null) throw this.#failure;
      assert.ok(this.#isOver, "the world does not come to its end");
      await life;
      this.checks.everything(this.database);
      const { digest, outcomes, commits } = { ...this.checks, digest: this.checks.digest() };
      return { events: this.timeline.count, commits, digest, outcomes };
    } catch (error) {
      throw new SimulationError(seed, this.timeline.nowMs, error);
    } finally {
      process.off("unhandledRejection", fail);
      for (const node of this.#nodes) node.kill();
      rmSync(this.#folder, { recursive: true });
    }
  }

  async #live(): Promise<void> {
    await Promise.all(this.#nodes.map((node) => this.#startAgain(node)));
    await this.#openAccounts();
    const clients = this.#clients.run(this.random);
    const program = new DirectProgram({ ...this, random: this.random.fork(), plans: this.#plans });
    const others = [
      this.#beOperator(this.random.fork()),
      this.#changePeople(this.random.fork()),
      this.#beFate(this.random.fork()),
      program.run(() => this.#clients.left <= 0, pauseOfProgramMs),
    ];
    const tampering = this.random.fork();
    const watches = [
      this.timeline.every(30 * second, () => this.#check(() => this.#checkExpiries())),
      this.timeline.every(hour, () => this.#check(() => this.checks.everything(this.database))),
      this.timeline.every((this.options.hours * hour) / tamperings, () =>
        this.#check(() => this.#audit(tampering)),
      ),
    ];
    await clients;
    await Promise.all(others);
    // Holds of processes that died expire, and the others are settled.
    await this.timeline.pause(3 * minute);
    await this.#receiveAll();
    for (const watch of watches) watch.close();
    await this.#checkMetrics();
    await this.#frontEnd?.checkOpened(this.database, !this.#hasClockFaults);
    this.#check(() =>
      assert.equal(this.upstreams.open, 0, "no server generates for a request that has ended"),
    );
    await Promise.all(this.#nodes.map((node) => (node.isUp ? node.stop() : undefined)));
    this.#check(() => assert.deepEqual([...this.database.ledger.holds.keys()], [], "every hold has ended"));
    this.#isOver = true;
  }

  /** Each answer has a hold, and the process counts its operations. */
  async #checkMetrics(): Promise<void> {
    for (const node of this.#nodes) {
      const socket = node.isUp ? this.#connect(node, operatorPort, "127.0.0.1") : null;
      if (socket === null) continue;
      const headers = { authorization: `Bearer ${token}`, connection: "close" };
      const answer = await send(socket, { method: "GET", path: "/metrics", headers });
      const found = /^inkwell_ledger_commit_operations_sum (\d+)$/m.exec(answer?.body ?? "");
      const answers = this.#clients.answered.get(node.owner) ?? 0;
      this.#check(() => assert.ok(Number(found?.[1]) >= answers, `${found?.[0]} with ${answers} answers`));
    }
  }

  /**
   * The receivers recover, operators end the pauses, and then every event arrives. Each result
   * that the database loses costs the time of a claim.
   */
  async #receiveAll(): Promise<void> {
    const { receivers } = this;
    receivers.recover();
    for (const name of receivers.names)
      await this.#insist(null, "POST", `/admin/events/endpoints/${name}/send`, {});
    for (let n = 0; n < 600 && !(await receivers.isDone()); n += 1) await this.timeline.pause(10 * second);
    this.#check(() => receivers.checkArrived());
  }

  /** Looks at one account, with changes by hand. */
  #audit(random: Random): void {
    const { store, ledger } = this.database;
    const moment = { ledger, plans: store.catalog, times: store.times() };
    this.checks.tampered(random.pick([...ledger.accounts.keys()]), moment, random);
  }

  /** Holds of processes that died end soon after their time, if another process is up. */
  #checkExpiries(): void {
    const { nowMs } = this.timeline;
    if (this.#nodes.every((node) => !node.isUp)) this.#upSinceMs = nowMs;
    if (nowMs - this.#upSinceMs < 3 * minute) return;
    const lateMsMax = 3 * minute + this.#clockFate.elapsedBehindMsMax;
    for (const { id, expiresMs } of this.database.ledger.holds.values()) {
      assert.ok(nowMs - expiresMs < lateMsMax, `the hold ${id} has been overdue for minutes`);
    }
  }

  async #openAccounts(): Promise<void> {
    for (let n = 0; n < accountCount; n += 1) {
      const account = `account-${n}`;
      await this.#insist(null, "POST", "/admin/accounts", {
        id: account,
        plan: this.random.pick(["small", "large"]),
      });
      for (let key = 0; key < 2; key += 1)
        this.#clients.keys.push({ account, secret: await this.#makeKey(account, {}) });
    }
    for (const drawn of this.#frontEnd?.drawn ?? []) {
      const secret = await this.#makeKey("account-0", drawn);
      this.#frontEnd?.keys.push({ secret, isOpening: "plan" in drawn.acts_for });
    }
  }

  async #makeKey(account: string, settings: object): Promise<string> {
    for (let attempt = 1; attempt < 40; attempt += 1) {
      const body = { ...settings, operation_id: `key-${account}-${this.#next()}` };
      const made = await this.#operate(null, "POST", `/admin/accounts/${account}/keys`, body);
      const secret: unknown = made?.status === 201 ? JSON.parse(made.body).key : null;
      if (typeof secret === "string") return secret;
      await this.timeline.pause(second);
    }
    throw new Error(`${account} gets no key`);
  }

  #next(): number {
    this.#count += 1;
    return this.#count;
  }

  /** Opens a connection to a process, or returns null if it does not listen. */
  #connect(node: SimulatedNode, port: number, address: string): SimulatedSocket | null {
    const { owner } = node;
    const server = node.listeners.get(port);
    if (server === undefined || owner.isGone) return null;
    const { timeline } = this;
    const delayMs = () => this.random.delay(this.#networkMs);
    const client = new SimulatedSocket({ timeline, owner: null, remoteAddress: "10.0.0.1", delayMs });
    const ofServer = new SimulatedSocket({ timeline, owner, remoteAddress: address, delayMs });
    client.join(ofServer);
    ofServer.join(client);
    const accept = () => {
      if (ofServer.destroyed) return;
      if (node.listeners.get(port) === server) server.emit("connection", ofServer);
      else client.destroy(new Error("the connection was refused"));
    };
    timeline.after(delayMs(), accept, owner);
    // A process that dies closes its connections.
    const watch = timeline.every(second, () => {
      if (client.destroyed) watch.close();
      else if (owner.isGone) client.destroy(new Error("the process is gone"));
    });
    return client;
  }

  /** `node`: null for any. */
  async #operate(
    node: SimulatedNode | null,
    method: string,
    path: string,
    body: object,
  ): Promise<Answered | null> {
    const socket = this.#connect(node ?? this.random.pick(this.#nodes), operatorPort, "127.0.0.1");
    if (socket === null) return null;
    const request: Request = {
      method,
      path,
      body: JSON.stringify(body),
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", connection: "close" },
    };
    this.timeline.after(minute, () => socket.destroy(new Error("the operator has waited for a minute")));
    // A change whose answer is lost is sent again.
    if (this.random.chance(0.15))
      this.timeline.after(this.random.delay(4 * this.#networkMs), () => socket.cut());
    const answer = await send(socket, request);
    this.#check(() => assert.notEqual(answer?.status, 500, `${method} ${path} is answered: ${answer?.body}`));
    return answer;
  }

  /** Repeats a change until it has an answer: each change counts once. */
  async #insist(
    node: SimulatedNode | null,
    method: string,
    path: string,
    body: object,
  ): Promise<Answered | null> {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      const answer = await this.#operate(node, method, path, body);
      if (answer?.isWhole === true && answer.status < 500) {
        this.checks.count(`operator ${method} ${answer.status}`);
        this.checks.note(`${this.timeline.nowMs} ${method} ${path} ${answer.status}`);
        return answer;
      }
      await this.timeline.pause(this.random.delay(2 * second));
    }
    return null;
  }

  async #beOperator(random: Random): Promise<void> {
    const pauseMs = (this.options.hours * hour) / Math.max(4, this.options.requests / 8);
    while (this.#clients.left > 0) {
      await this.timeline.pause(random.next() * 2 * pauseMs);
      if (this.#has("operators")) await this.#act(random);
    }
    for (let n = 0; n < accountCount; n += 1) {
      const body = { operation_id: `end-${n}`, state: "active" };
      await this.#insist(null, "POST", `/admin/accounts/account-${n}/state`, body);
    }
  }

  /** Another operator changes the people behind the front end. */
  async #changePeople(random: Random): Promise<void> {
    const frontEnd = this.#frontEnd;
    if (frontEnd === null || !this.#has("operators")) return;
    const pauseMs = (this.options.hours * hour) / Math.max(8, this.options.requests / 6);
    const insist = this.#insist.bind(this, null);
    while (this.#clients.left > 0) {
      await this.timeline.pause(random.next() * 2 * pauseMs);
      const linkable = `account-${random.whole(0, accountCount - 1)}`;
      this.checks.count(`people ${await frontEnd.change(random, this.database.store, { insist, linkable })}`);
    }
  }

  async #act(random: Random): Promise<void> {
    const id = `operation-${this.#next()}`;
    const own = `account-${random.whole(0, accountCount - 1)}`;
    const ofPeople = this.#frontEnd?.accounts ?? [];
    const account = random.pick(random.chance(0.4) ? [own, ...ofPeople] : [own]);
    const change = drawChange(random, {
      id,
      account,
      nowMs: this.timeline.nowMs,
      ledger: this.database.ledger,
      payments: this.#payments,
      requestIds: this.#clients.requestIds.slice(-20),
    });
    if (change === "plans") {
      await this.#changePlans(random);
      return;
    }
    if (change === null) return;
    const { method, path, body, isRepeated } = change;
    if ("payment_id" in body && path.endsWith("/topups")) this.#payments.push({ account, id });
    await (isRepeated ? this.#insist(null, method, path, body) : this.#operate(null, method, path, body));
  }

  /** New files on all machines or on one of them, and a reload of some processes. */
  async #changePlans(random: Random): Promise<void> {
    const configuration = this.#configuration + plansOf(random, { hasLarge: random.chance(0.7) });
    const nodes = random.chance(0.8) ? this.#nodes : [random.pick(this.#nodes)];
    for (const node of nodes) writeFileSync(node.configuration, configuration);
    for (const node of nodes.filter(({ isUp }) => isUp && random.chance(0.8))) {
      await this.#insist(node, "POST", "/admin/reload", {});
    }
  }

  /** Processes die and start again, and the database crashes. */
  async #beFate(random: Random): Promise<void> {
    const pauseMs = (this.options.hours * hour) / Math.max(4, this.options.requests / 25);
    while (this.#clients.left > 0) {
      await this.timeline.pause(random.next() * 2 * pauseMs);
      // Mostly while answers are under way.
      for (let n = 0; n < 60 && this.upstreams.open === 0 && this.#clients.left > 0; n += 1) {
        await this.timeline.pause(random.delay(second));
      }
      const node = random.pick(this.#nodes);
      const what = random.weighted({
        kill: this.#has("crashes") ? 4 : 0,
        restart: this.#has("restarts") ? 2 : 0,
        database: this.#has("database") ? 2 : 0,
        clock: this.#hasClockFaults ? 4 : 0,
        nothing: 0.1,
      });
      this.checks.count(`fate ${what}`);
      if (what === "clock") await this.#clockFate.happen();
      else if (what === "database") {
        this.database.crash();
        this.#fairness.interrupted();
      } else if (node.isUp && what !== "nothing") {
        if (what === "kill") node.kill();
        else await node.stop();
        await this.timeline.pause(random.delay(10 * second));
        await this.#startAgain(node);
      }
    }
  }

  /** A process that cannot start is started again, as a service manager does. */
  async #startAgain(node: SimulatedNode): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await node.start();
        return;
      } catch (error) {
        node.kill();
        this.checks.count("fate start failed");
        if (attempt === startsMax) throw error;
        await this.timeline.pause(5 * second);
      }
    }
  }
}

const goodHabits: UpstreamHabits = {
  well: 100,
  refusesConnection: 0,
  respondsWithError: 0,
  breaksOff: 0,
  hangs: 0,
  staysSilent: 0,
  lies: 0,
  runsOn: 0,
  endsEarly: 0,
};

/** Runs a world to its end. Throws a `SimulationError` at the first violation. */
export async function simulate(bundle: string, options: WorldOptions): Promise<SimulationResult> {
  return await new World(bundle, options).run();
}
