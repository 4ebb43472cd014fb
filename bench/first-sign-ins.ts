/**
 * 1,000 people who sign in for the first time, at a real issuer, beside running answers: each gets
 * an account and makes a key. The floor, in the same run, is the same answers before.
 *
 *   npm run bench -- first-sign-ins [--people 1000] [--per-second 20] [--callers 4] [--seconds 15]
 *
 * The service is a process of its own. The issuer, the people, the callers and the model server
 * share this process, so on two cores they take one of them.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, fetch } from "undici";
import { startIssuer, type TestIssuer } from "../test/fixtures/issuer.ts";
import { answerLoad } from "../test/fixtures/load-upstream.ts";
import { freePort, newFolder, noDefaultModel, startProgram } from "../test/fixtures/program.ts";
import { startUpstream } from "../test/fixtures/upstream.ts";
import { optionsOf } from "./options.ts";
import { medianOf } from "./servers.ts";

/** People come from this many addresses. A step is limited for each address. */
const addresses = 100;

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, { people: "1000", "per-second": "20", callers: "4", seconds: "15" });
  const people = Number(values.people);
  await using upstream = await startUpstream(answerLoad);
  await using folder = await newFolder();
  const portalPort = await freePort();
  const portal = `http://127.0.0.1:${portalPort}`;
  await using issuer = await startIssuer({ redirectUris: [`${portal}/signed-in`] });
  const settings = { upstream: upstream.url, portal, portalPort, issuer };
  writeFileSync(path.join(folder.path, "inkwell.yaml"), configuration(settings));
  const env = { ...noDefaultModel, INKWELL_OPERATOR_TOKEN: "the-token-of-the-bench-0123456789" };
  await using service = startProgram(folder.path, { env });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const agents = Array.from(
    { length: addresses },
    (_, n) => new Agent({ localAddress: `127.0.1.${n + 1}`, connections: 1 }),
  );

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
  const startedMs = performance.now();
  const pauseMs = 1000 / Number(values["per-second"]);
  await Promise.all(
    Array.from({ length: people }, async (_, n) => {
      const agent = agents[n % addresses];
      assert.ok(agent !== undefined);
      await sleep(n * pauseMs);
      await signIn({ issuer, portal, person: `person-${n}`, agent });
    }),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  const beside = answers;
  isOver = true;
  await Promise.all(callers);
  for (const agent of agents) await agent.close();
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
  issuer: TestIssuer;
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

interface SigningIn {
  issuer: TestIssuer;
  portal: string;
  person: string;
  agent: Agent;
}

/** Signs in as a page of the portal does, and makes a key. */
async function signIn({ issuer, portal, person, agent }: SigningIn): Promise<void> {
  const page = { "x-inkwell-request": randomBytes(32).toString("base64url") };
  const post = async (address: string, body: object, headers: Record<string, string> = {}) => {
    const response = await fetch(portal + address, {
      ...{ method: "POST", dispatcher: agent, body: JSON.stringify(body) },
      headers: { ...page, "content-type": "application/json", ...headers },
    });
    const text = await response.text();
    assert.ok(response.ok, `${address}: ${response.status} ${text}`);
    return { json: JSON.parse(text), cookie: response.headers.get("set-cookie")?.split(";")[0] ?? "" };
  };
  const begun = await post("/api/sign-in", {});
  issuer.knows({ sub: person, name: person, groups: ["students"] });
  const response = await issuer.visit(String(begun.json.url), person);
  const { cookie } = await post("/api/session", { response });
  await post("/api/keys", { operation_id: "first", name: "laptop" }, { cookie });
}
