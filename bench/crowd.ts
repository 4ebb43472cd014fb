/**
 * The issuer and the people of first-sign-ins.ts, in a thread of their own: what they compute must
 * not delay the answers that the bench measures.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { Agent, fetch } from "undici";
import { startIssuer, type TestIssuer } from "../test/fixtures/issuer.ts";

/** Given to the thread. */
export interface CrowdData {
  portal: string;
  people: number;
  perSecond: number;
}

/** The first message of the thread. The second one is the seconds that all sign-ins took. */
export type StartedIssuer = Pick<TestIssuer, "url" | "client">;

/** People come from this many addresses. A step is limited for each address. */
const addresses = 100;

assert.ok(parentPort !== null);
const { portal, people, perSecond }: CrowdData = workerData;
await using issuer = await startIssuer({ redirectUris: [`${portal}/signed-in`] });
parentPort.postMessage({ url: issuer.url, client: issuer.client } satisfies StartedIssuer);
await once(parentPort, "message");
const agents = Array.from(
  { length: addresses },
  (_, n) => new Agent({ localAddress: `127.0.1.${n + 1}`, connections: 1 }),
);
const startedMs = performance.now();
await Promise.all(
  Array.from({ length: people }, async (_, n) => {
    const agent = agents[n % addresses];
    assert.ok(agent !== undefined);
    await sleep((n * 1000) / perSecond);
    await signIn(`person-${n}`, agent);
  }),
);
parentPort.postMessage((performance.now() - startedMs) / 1000);
for (const agent of agents) await agent.close();
parentPort.close();

/** Signs in as a page of the portal does, and makes a key. */
async function signIn(person: string, agent: Agent): Promise<void> {
  const page = { "x-inkwell-request": randomBytes(32).toString("base64url") };
  const post = async (address: string, body: object, headers: Record<string, string> = {}) => {
    const response = await fetch(portal + address, {
      method: "POST",
      dispatcher: agent,
      body: JSON.stringify(body),
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
