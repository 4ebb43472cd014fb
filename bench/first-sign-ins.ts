/**
 * 1,000 people who sign in for the first time, at a real issuer, beside running answers: each gets
 * an account and makes a key. The floor, in the same run, is the same answers before.
 *
 *   npm run bench -- first-sign-ins [--people 1000] [--per-second 20] [--callers 4] [--seconds 15]
 *
 * The service is a process of its own. The issuer and the people are a thread of their own. The
 * callers and the model server share the main thread. On two cores, all of them share these.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { fetch } from "undici";
import { answerLoad } from "../test/fixtures/load-upstream.ts";
import { freePort, newFolder, startProgram } from "../test/fixtures/program.ts";
import { startUpstream } from "../test/fixtures/upstream.ts";
import type { CrowdData, StartedIssuer } from "./crowd.ts";
import { optionsOf } from "./options.ts";
import { medianOf } from "./servers.ts";

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, { people: "1000", "per-second": "20", callers: "4", seconds: "15" });
  const people = Number(values.people);
  await using upstream = await startUpstream(answerLoad);
  await using folder = await newFolder();
  const portalPort = await freePort();
  const portal = `http://127.0.0.1:${portalPort}`;
  const workerData: CrowdData = { portal, people, perSecond: Number(values["per-second"]) };
  const crowd = new Worker(new URL("./crowd.ts", import.meta.url), { workerData });
  const next = async () => (await once(crowd, "message"))[0];
  const issuer: StartedIssuer = await next();
  const settings = { upstream: upstream.url, portal, portalPort, issuer };
  writeFileSync(path.join(folder.path, "inkwell.yaml"), configuration(settings));
  const env = { INKWELL_OPERATOR_TOKEN: "the-token-of-the-bench-0123456789" };
  await using service = startProgram(folder.path, { env });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  /** Milliseconds of each answer. */
  let answers: number[] = [];
  let isOver = false;
  const callers = Array.from({ length: Number(values.callers) }, async () => {
    while (!isOver) {
      const startedMs = performance.now();
      await answer(url, key);
      answers.push(performance.now() - startedMs);
      await sleep(20);
    }
  });
  const ms = Number(values.seconds) * 1000;
  await sleep(Math.min(2_000, ms));
  answers = [];
  await sleep(ms);
  const before = answers;
  answers = [];
  crowd.postMessage("sign in");
  const seconds: number = await next();
  const beside = answers;
  isOver = true;
  await Promise.all(callers);
  console.log(`${people} people signed in for the first time and made a key, in ${seconds.toFixed(1)} s`);
  const ratioOf = (of: (ms: number[]) => number) => (of(beside) / of(before)).toFixed(2);
  console.table(
    [before, beside].map((ms, n) => ({
      answers: n === 0 ? "before" : "beside sign-ins",
      count: ms.length,
      "median ms": medianOf(ms).toFixed(1),
      "95th percentile ms": percentile(ms).toFixed(1),
      "ratio of medians": n === 0 ? "" : ratioOf(medianOf),
      "ratio of 95th percentiles": n === 0 ? "" : ratioOf(percentile),
    })),
  );
}

function percentile(ms: number[]): number {
  return ms.toSorted((a, b) => a - b)[Math.floor(ms.length * 0.95)] ?? 0;
}

interface Settings {
  upstream: string;
  portal: string;
  portalPort: number;
  issuer: StartedIssuer;
}

function configuration({ upstream, portal, portalPort, issuer }: Settings): string {
  return `plans:
  starter:
    base: { credits: 100000, every: P1M }
    overage: { credits: 0, every: P1M }
models:
  m: { engine: upstream, url: "${upstream}", model: m, parallel: 64, price: { prompt: 1, completion: 1 } }
portal: { port: ${portalPort}, url: "${portal}" }
sign_in:
  issuer: ${issuer.url}
  client_id: ${issuer.client.id}
  client_secret: ${issuer.client.secret}
  accounts: [{ group: students, plan: starter }]
`;
}

async function answer(url: string, key: string): Promise<void> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 20 }),
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
}
