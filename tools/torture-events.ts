/**
 * The events of `torture-kill.ts`: a receiver that is killed, and loses answers, and the checks of
 * what it got.
 *
 * - each event of the database arrived, under one id, and no other one;
 * - the events of an account first arrived in the order of its journal;
 * - no event is in the database twice, and each is one that follows from the facts: each threshold
 *   once in its window.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chargeTable, grantTable, journalTable } from "../src/store/tables.ts";
import { naiveEvents, naiveLineOf } from "../test/fixtures/naive-events.ts";
import { until } from "../test/fixtures/until.ts";
import { type Received, secrets } from "../test/fixtures/webhook-receiver.ts";
import type { TorturedLedger } from "./torture-ledger.ts";
import { operatorToken } from "./torture-operator.ts";

const child = path.join(import.meta.dirname, "../test/fixtures/receiver-child.ts");

/** 100 % is rarely reached by a plan of this size. */
const thresholdPercents = [1, 5, 20, 50, 80];

export class EventReceiver {
  readonly #port: number;
  readonly #file: string;
  readonly #ledger: TorturedLedger;
  #process: ChildProcess | null = null;

  constructor(port: number, folder: string, ledger: TorturedLedger) {
    this.#port = port;
    this.#file = path.join(folder, "received-events");
    this.#ledger = ledger;
    // Also if a check fails.
    process.once("exit", () => this.kill());
  }

  /** The section of the configuration. */
  get yaml(): string {
    const url = `http://127.0.0.1:${this.#port}/`;
    return `events:
  thresholds: [${thresholdPercents}]
  networks: ["127.0.0.0/8"]
  endpoints: { receiver: { url: "${url}", secret: ${secrets.current} } }
`;
  }

  start(): void {
    const started = spawn(process.execPath, [child, String(this.#port), this.#file], { stdio: "ignore" });
    this.#process = started;
    // Another program can have its port for a moment.
    started.once("exit", (code) => {
      if (code !== null && this.#process === started)
        setTimeout(() => this.#process === started && this.start(), 500);
    });
  }

  kill(): void {
    this.#process?.kill("SIGKILL");
    this.#process = null;
  }

  /** Ends the present pauses, which take up to an hour. False: nobody answers. */
  async #sendFailed(operatorUrl: string): Promise<boolean> {
    const headers = { authorization: `Bearer ${operatorToken}`, "content-type": "application/json" };
    const url = `${operatorUrl}/admin/events/endpoints/receiver/send`;
    let response: Response;
    try {
      response = await fetch(url, { method: "POST", headers, body: "{}" });
    } catch {
      return false;
    }
    assert.equal(response.status, 200, await response.text());
    return true;
  }

  /** Sends without pauses until the service or the receiver is killed. */
  async hurry(operatorUrl: string, killed: AbortSignal): Promise<void> {
    while (!killed.aborted) {
      await this.#sendFailed(operatorUrl);
      await sleep(200);
    }
  }

  #received(): Received[] {
    if (!existsSync(this.#file)) return [];
    // The last line of a killed process can be cut off. Its answer was never sent.
    const lines = readFileSync(this.#file, "utf8").split("\n").slice(0, -1);
    return lines.map((line) => JSON.parse(line));
  }

  /** Waits until nothing is left to send. There may be thousands, of one account. */
  async untilAllSent(operatorUrl: string): Promise<void> {
    for (let left = await this.#unsent(); left > 0; ) {
      await until("another event is delivered", async () => {
        const before = left;
        await this.#sendFailed(operatorUrl);
        await sleep(200);
        left = await this.#unsent();
        return left < before;
      });
    }
  }

  async #unsent(): Promise<number> {
    const [row] = await this.#ledger.query(`select (select count(*) from event where not queued) as fresh,
      (select count(*) from event_delivery where state <> 'delivered') as waiting`);
    return Number(row?.fresh) + Number(row?.waiting);
  }

  /** Checks what has arrived, after all was sent and nothing writes. */
  async assertAll(): Promise<string> {
    const rows = await this.#ledger.query(
      "select number, id, account, seq, type, data from event order by number",
    );
    const received = this.#received();
    const firsts = new Map<string, Received>();
    for (const event of received) if (!firsts.has(event.id)) firsts.set(event.id, event);
    assert.deepEqual([...firsts.keys()].toSorted(), rows.map(({ id }) => String(id)).toSorted());
    const accounts = [...new Set(rows.map(({ account }) => account))].filter((account) => account !== null);
    for (const account of accounts) {
      const own = rows.filter((row) => row.account === account);
      const arrived = [...firsts.values()].filter((event) => event.account === account);
      assert.deepEqual(
        arrived.map(({ id }) => id),
        own.map(({ id }) => id),
        `the order of ${account}`,
      );
    }
    await this.#assertThresholds(rows, accounts.map(String));
    const lows = rows.filter(({ type }) => type === "balance.low").length;
    return `${rows.length} events, ${lows} of them low balances, arrived ${received.length} times, each in its order.`;
  }

  async #assertThresholds(
    rows: readonly Record<string, unknown>[],
    accounts: readonly string[],
  ): Promise<void> {
    const read = async <R>(table: { name: string; list(): string; rowOf(cells: readonly unknown[]): R }) =>
      (await this.#ledger.query(`select ${table.list()} from ${table.name}`)).map((row) =>
        table.rowOf(Object.values(row)),
      );
    const facts = {
      journal: await read(journalTable),
      grants: await read(grantTable),
      charges: await read(chargeTable),
    };
    for (const account of accounts) {
      const lines = rows
        .filter((row) => row.account === account)
        .flatMap(({ type, data }) => naiveLineOf(String(type), JSON.parse(String(data))) ?? []);
      const missing = naiveEvents(facts, account, thresholdPercents);
      const unexpected = lines.filter((line) => {
        const found = missing.indexOf(line);
        if (found >= 0) missing.splice(found, 1);
        return found < 0;
      });
      assert.deepEqual({ missing, unexpected }, { missing: [], unexpected: [] }, account);
    }
  }
}
