/**
 * Pairs of hold and settlement per second beside 1,000 payments a second, each of which is an
 * event: with events in the outbox, and with events that are also sent. The floor, in turns in the
 * same run, is the same work without events.
 *
 *   npm run bench -- events [--callers 32] [--accounts 1000] [--events 1000] [--seconds 2] \
 *     [--rounds 3]
 *
 * The receiver is a server in this process, which answers at once.
 */
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { EventSending, eventTimes } from "../src/events/event-sending.ts";
import { Jobs } from "../src/jobs.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import { openSqliteStore } from "../src/store/sqlite/store.ts";
import { accountId, makeLedgerFile, nextAccount, plans } from "./ledger-file.ts";
import { optionsOf } from "./options.ts";
import { holdAndSettle } from "./pair.ts";
import { medianOf } from "./servers.ts";

const settings = ["without events", "in the outbox", "in the outbox and sent"] as const;
type Setting = (typeof settings)[number];

interface Measured {
  pairsPerSecond: number;
  cpuMicrosPerPair: number;
  events: number;
  sent: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    callers: "32",
    accounts: "1000",
    events: "1000",
    seconds: "2",
    rounds: "3",
  });
  const [callers, accounts, events] = [values.callers, values.accounts, values.events].map(Number);
  const ms = Number(values.seconds) * 1000;
  const folder = mkdtempSync(join(tmpdir(), "inkwell-bench-"));
  const measured = new Map<Setting, Measured[]>(settings.map((setting) => [setting, []]));
  try {
    const empty = join(folder, "empty.db");
    makeLedgerFile(empty, accounts ?? 1, 0);
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const setting of settings) {
        const path = join(folder, "ledger.db");
        copyFileSync(empty, path);
        const found = await measure(path, setting, {
          callers: callers ?? 1,
          accounts: accounts ?? 1,
          perSecond: events ?? 0,
          ms,
        });
        measured.get(setting)?.push(found);
        for (const ending of ["", "-wal", "-shm"]) rmSync(path + ending, { force: true });
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  const median = (setting: Setting, of: keyof Measured) =>
    medianOf((measured.get(setting) ?? []).map((each) => each[of]));
  console.log(
    `Pairs beside ${values.events} payments a second, median of ${values.rounds} rounds of ${values.seconds} s`,
  );
  console.table(
    settings.map((setting) => ({
      setting,
      "pairs/s": median(setting, "pairsPerSecond").toFixed(0),
      ratio: (median(setting, "pairsPerSecond") / median(settings[0], "pairsPerSecond")).toFixed(3),
      "CPU µs/pair": median(setting, "cpuMicrosPerPair").toFixed(0),
      "events/s": median(setting, "events").toFixed(0),
      "sent/s": median(setting, "sent").toFixed(0),
    })),
  );
}

interface Load {
  callers: number;
  accounts: number;
  perSecond: number;
  ms: number;
}

async function measure(
  path: string,
  setting: Setting,
  { callers, accounts, perSecond, ms }: Load,
): Promise<Measured> {
  const hasEvents = setting !== settings[0];
  const store = await openSqliteStore({
    path,
    plans,
    events: () => (hasEvents ? { thresholdPercents: [80, 90, 100] } : null),
  });
  const ledger = new Ledger(store);
  const stop = setting === settings[2] ? await startSending(store) : async () => 0;
  const began = performance.now();
  let [turn, paid] = [0, 0];
  const untilMs = began + ms;
  const caller = async () => {
    let pairs = 0;
    while (performance.now() < untilMs) {
      await holdAndSettle(ledger, nextAccount(turn++, accounts));
      pairs += 1;
    }
    return pairs;
  };
  const pay = async () => {
    const underWay: Promise<unknown>[] = [];
    while (performance.now() < untilMs) {
      for (const due = ((performance.now() - began) / 1000) * perSecond; paid < due; paid += 1)
        underWay.push(
          ledger.apply({
            kind: "topup",
            account: accountId(paid % accounts),
            payment: `p${paid}`,
            amountMicro: 1_000_000,
            by: "bench",
          }),
        );
      await sleep(5);
    }
    await Promise.all(underWay);
  };
  const cpu = process.cpuUsage();
  const [counts] = await Promise.all([Promise.all(Array.from({ length: callers }, caller)), pay()]);
  const tookMs = performance.now() - began;
  const { user, system } = process.cpuUsage(cpu);
  const sent = await stop();
  await ledger.idle();
  await store.close();
  const pairs = counts.reduce((sum, each) => sum + each, 0);
  return {
    pairsPerSecond: (pairs / tookMs) * 1000,
    cpuMicrosPerPair: (user + system) / pairs,
    events: hasEvents ? (paid / tookMs) * 1000 : 0,
    sent: (sent / tookMs) * 1000,
  };
}

/** Returns a function that stops, and tells how many events were sent. */
async function startSending(
  store: Awaited<ReturnType<typeof openSqliteStore>>,
): Promise<() => Promise<number>> {
  let received = 0;
  const server = createServer((request, response) => {
    request.resume();
    received += 1;
    response.writeHead(204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server has a port");
  const logger = { info: () => {}, error: console.error };
  const jobs = new Jobs({ logger, metrics: { jobStarted: () => {}, jobEnded: () => {} } });
  const sending = new EventSending({
    store,
    jobs,
    logger,
    node: "bench",
    times: eventTimes,
    catalog: { all: () => [] },
    portalUrl: null,
    onAttempt: () => {},
  });
  sending.configure({
    thresholdPercents: [80, 90, 100],
    expiringMs: 1,
    networks: ["127.0.0.0/8"],
    mail: null,
    endpoints: [
      {
        name: "bench",
        url: `http://127.0.0.1:${address.port}`,
        types: ["payment.added"],
        secrets: [`whsec_${Buffer.alloc(32).toString("base64")}`],
      },
    ],
  });
  return async () => {
    const sent = received;
    await sending.close();
    await jobs.stop();
    server.close();
    server.closeAllConnections();
    return sent;
  };
}
