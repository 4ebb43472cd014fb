/**
 * Kills the real service (`kill -9`) at random times, while clients stream, payments come in and
 * an operator changes plans, keys, the account and the configuration (torture-operator.ts), and
 * starts it again. The ledger is audited after each kill. At the end all charges are compared with
 * what the clients received:
 *
 * - no account paid for more than the prompt and the generated tokens;
 * - no account got more unpaid tokens than the prompt and the tokens between two checkpoints;
 * - no payment, refund or other change was lost or took effect twice;
 * - each event arrived under one id, in the order of its account. Its receiver is killed too.
 */
import assert from "node:assert/strict";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { sliceTokens } from "../src/chat/hold-extender.ts";
import { ask } from "../test/fixtures/http-stream.ts";
import {
  defaultPrice,
  freePort,
  newFolder,
  type Program,
  quickEntry,
  startProgram,
} from "../test/fixtures/program.ts";
import { randomFrom } from "../test/fixtures/random.ts";
import { until } from "../test/fixtures/until.ts";
import { EventReceiver } from "./torture-events.ts";
import { ledgers, type TorturedLedger } from "./torture-ledger.ts";
import { Operator, operatorToken } from "./torture-operator.ts";

const clients = 4;
const upMsMin = 300;
const paymentsPerCycle = 2;
/**
 * Tokens between the decoder and a client: generated before a client's abort arrived, or while a
 * checkpoint was being written. This takes tenths of a second at the speed of the miniature
 * model, and longer on a machine that stalls.
 */
function underWayTokensMax(longestStallNs: number): number {
  return Math.ceil(128 * (1 + longestStallNs / 200_000_000));
}

const price = defaultPrice;

/** Credits of a payment. They pay for about 30,000 tokens. */
const paymentCredits = 3000;
const paymentMicro = paymentCredits * 1_000_000;

const prompts = [
  "What is ink?",
  "An endless story, please.",
  "Tell me of endless rivers and of their ships.",
];

type Ended = "complete" | "aborted" | "killed" | "refused";

interface Seen {
  id: string;
  ended: Ended;
  prompt: string;
  tokens: number;
  usage: { prompt_tokens: number; completion_tokens: number } | null;
}

interface Payments {
  sent: Set<string>;
  acknowledged: Set<string>;
}

export async function tortureByKilling(options: {
  store: string;
  seed: number;
  cycles: number;
  upMsMax: number;
  /** Holds of a killed service expire within seconds. */
  isQuick: boolean;
}): Promise<void> {
  const { store, seed, cycles, upMsMax, isQuick } = options;
  console.log(`${store}: ${cycles} kills, seed ${seed}`);
  const startedMs = performance.now();
  const stalls = monitorEventLoopDelay();
  stalls.enable();
  const random = randomFrom(seed);
  await using folder = await newFolder();
  const open = ledgers[store];
  assert.ok(open !== undefined);
  const ledger = await open(folder.path);
  const events = new EventReceiver(await freePort(), folder.path, ledger);
  const operator = new Operator(folder.path, ledger, random, events.yaml);
  await operator.writeConfiguration();
  const env = {
    ...ledger.env,
    INKWELL_PORT: String(await freePort()),
    INKWELL_OPERATOR_TOKEN: operatorToken,
  };
  const start = () => startProgram(folder.path, { env, ...(isQuick ? { entry: quickEntry } : {}) });
  const seen: Seen[] = [];
  /** Requests that broke before an answer began. The client does not know their id. */
  let unanswered = 0;
  const payments: Payments = { sent: new Set(), acknowledged: new Set() };
  const checkpoints = new Map<string, { prompt: number; completion: number }>();
  let key = "";

  for (let cycle = 1; cycle <= cycles; cycle += 1) {
    await using server = start();
    const up = await server.up();
    events.start();
    key = up.key ?? key;
    await operator.meet(server, up);
    const killed = new AbortController();
    const asking = { url: up.url, key, operator, random, killed: killed.signal };
    const work = Promise.all([
      operator.work(killed.signal),
      events.hurry(up.operatorUrl, killed.signal),
      ...Array.from({ length: clients }, async () => {
        while (!killed.signal.aborted) {
          const one = await request(asking);
          if (one === null) unanswered += 1;
          else seen.push(one);
          if (one?.ended === "refused") await sleep(50);
        }
      }),
    ]);
    const payers: { id: string; program: Program }[] = [];
    for (let n = 0; n < paymentsPerCycle; n += 1) {
      const id = `payment-${cycle}-${n}`;
      payments.sent.add(id);
      payers.push({ id, program: await pay(folder.path, ledger, id) });
    }
    // Ends early if a check of a client or of the operator fails.
    await Promise.race([work, sleep(upMsMin + random() * Math.max(0, upMsMax - upMsMin))]);
    // The receiver dies before, with or after the service.
    if (random() < 0.5) events.kill();
    server.process.kill("SIGKILL");
    killed.abort();
    events.kill();
    for (const { program } of payers) program.process.kill("SIGKILL");
    await server.ended;
    for (const { id, program } of payers) {
      if ((await program.ended).code !== 0) continue;
      payments.acknowledged.add(id);
    }
    await work;
    await ledger.settled();

    const holds = await ledger.query("select id, prompt_tokens, completion_tokens from hold");
    for (const { id, prompt_tokens: prompt, completion_tokens: completion } of holds) {
      checkpoints.set(String(id), { prompt: Number(prompt), completion: Number(completion) });
    }
    await ledger.assertSound({ holds: holds.length });
    for (const id of await assertPayments(ledger, payments.acknowledged)) operator.paid(id, paymentMicro);
    await operator.assertChanges();
    console.log(
      `kill ${cycle}: ${seen.length} requests so far, ${holds.length} holds open, the ledger is sound`,
    );
  }

  {
    // Holds of the killed process expire. All payments without a known result are sent again.
    await using server = start();
    const up = await server.up();
    events.start();
    await operator.meet(server, up);
    await operator.repeatAll();
    for (const id of payments.sent) {
      await using program = await pay(folder.path, ledger, id);
      assert.equal((await program.ended).code, 0, program.stderr);
      payments.acknowledged.add(id);
    }
    await until("every hold has ended", async () => (await ledger.query("select id from hold")).length === 0);
    await events.untilAllSent(up.operatorUrl);
    assert.equal((await server.stop()).code, 0);
    events.kill();
  }
  await ledger.assertSound();
  console.log(await events.assertAll());
  await assertPayments(ledger, payments.sent);
  await operator.assertChanges();
  await report(ledger, seen, unanswered, checkpoints, underWayTokensMax(stalls.max));
  console.log(operator.summary());
  console.log(
    `${payments.sent.size} payments, each counted once. ${((performance.now() - startedMs) / 1000).toFixed(0)} s.`,
  );
}

interface Asking {
  url: string;
  key: string;
  operator: Operator;
  random: () => number;
  killed: AbortSignal;
}

/** Null if the connection broke before the answer began. */
async function request({ url, key: ownKey, operator, random, killed }: Asking): Promise<Seen | null> {
  const prompt = prompts[Math.floor(random() * prompts.length)] ?? "";
  const leaveAfterTokens = random() < 0.3 ? Math.floor(random() * 400) : Number.POSITIVE_INFINITY;
  const body = { stream: true, stream_options: { include_usage: true }, logprobs: true };
  const leaving = new AbortController();
  const { secret, isRotating } = operator;
  const key = random() < 0.5 ? ownKey : secret;
  const one: Seen = { id: "", ended: "killed", prompt, tokens: 0, usage: null };
  try {
    const max_tokens = 20 + Math.floor(random() * 2000);
    const response = await ask({ url, key, content: prompt, max_tokens, ...body }, leaving.signal);
    one.id = response.headers.get("x-request-id") ?? "";
    const wasRotated = isRotating || operator.isRotating || operator.secret !== secret;
    if (response.status !== 200 || response.body === null) {
      const text = await response.text();
      assert.ok([401, 402, 403, 429].includes(response.status), `${response.status} ${text}`);
      if (response.status === 401) assert.ok(key === secret && wasRotated, "a valid secret is refused");
      return { ...one, ended: "refused" };
    }
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of response.body) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) read(line, one);
      if (one.tokens >= leaveAfterTokens && one.ended !== "complete") {
        one.ended = "aborted";
        break;
      }
    }
  } catch (error) {
    // Broken connections are expected, other errors are not.
    if (!(error instanceof TypeError) && !killed.aborted) throw error;
  } finally {
    leaving.abort();
  }
  return one.id === "" ? null : one;
}

interface Chunk {
  choices: { logprobs?: { content: unknown[] } | null }[];
  usage?: Seen["usage"];
}

function read(line: string, one: Seen): void {
  if (line === "data: [DONE]") one.ended = "complete";
  else if (line.startsWith("data: ")) {
    const chunk: Chunk = JSON.parse(line.slice("data: ".length));
    one.tokens += chunk.choices?.[0]?.logprobs?.content.length ?? 0;
    if (chunk.usage) one.usage = chunk.usage;
  }
}

async function pay(folder: string, ledger: TorturedLedger, id: string): Promise<Program> {
  const [account] = await ledger.query("select id from account");
  const args = ["credits", "add", String(account?.id), String(paymentCredits), "--payment", id];
  return startProgram(folder, { args, env: ledger.env });
}

/** Checks that every acknowledged payment exists and none exists twice. Returns all of them. */
async function assertPayments(ledger: TorturedLedger, acknowledged: ReadonlySet<string>): Promise<string[]> {
  const rows = await ledger.query(
    "select payment as ref, amount from credit_grant where payment is not null",
  );
  const counted = rows.map(({ ref }) => String(ref));
  assert.equal(new Set(counted).size, counted.length, "a payment was counted twice");
  for (const id of acknowledged) assert.ok(counted.includes(id), `${id} was acknowledged and is not there`);
  for (const { ref, amount } of rows) assert.equal(amount, paymentMicro, `the amount of ${ref}`);
  return counted;
}

/** Returns what each request was charged: the sum of its lines. The first line has the ending. */
async function receiptsOf(ledger: TorturedLedger) {
  const rows = await ledger.query(
    `select id, max(case when not late then ending end) as ending,
       max(case when late then 1 else 0 end) as late, sum(cost) as cost,
       sum(prompt_tokens) as prompt_tokens, sum(completion_tokens) as completion_tokens
     from charge group by id`,
  );
  return new Map(rows.map((row) => [String(row.id), row]));
}

/** Throws if a charge does not match what the client received, and prints both. */
async function report(
  ledger: TorturedLedger,
  seen: readonly Seen[],
  unanswered: number,
  checkpoints: ReadonlyMap<string, { prompt: number; completion: number }>,
  underWayTokens: number,
): Promise<void> {
  const promptTokens = new Map<string, number>();
  for (const { prompt, usage } of seen) if (usage !== null) promptTokens.set(prompt, usage.prompt_tokens);
  const receipts = await receiptsOf(ledger);
  const rows = new Map<
    Ended,
    { requests: number; seen: number; charged: number; over: number; free: number }
  >();

  for (const { id, prompt, tokens, usage, ...one } of seen) {
    // A client can leave so shortly before a kill that its hold is still open.
    const checkpoint = checkpoints.get(id);
    const ended = one.ended === "aborted" && checkpoint !== undefined ? "killed" : one.ended;
    const receipt = receipts.get(id);
    receipts.delete(id);
    const charged = Number(receipt?.completion_tokens ?? 0);
    const chargedPrompt = Number(receipt?.prompt_tokens ?? 0);
    const what = `request ${id} (${ended}, saw ${tokens} tokens, charged ${charged} and ${chargedPrompt} of prompt, ${receipt?.ending ?? "no receipt"})`;
    const cost = chargedPrompt * price.prompt + charged * price.completion;
    assert.equal(Number(receipt?.cost ?? 0), cost, `${what}: the cost is its tokens'`);
    const told = promptTokens.get(prompt) ?? chargedPrompt;
    assert.ok(chargedPrompt === 0 || chargedPrompt === told, `${what}: the prompt`);
    if (receipt?.ending === "expired" && receipt.late === 0) {
      assert.deepEqual(
        { prompt: chargedPrompt, completion: charged },
        checkpoint,
        `${what}: the last checkpoint`,
      );
    }
    if (ended === "refused") assert.equal(cost, 0, what);
    if (ended === "complete") {
      const shown = { prompt: usage?.prompt_tokens, completion: usage?.completion_tokens };
      assert.deepEqual({ prompt: chargedPrompt, completion: charged }, shown, `${what}: what it was told`);
    }
    if (ended === "aborted") assert.ok(charged >= tokens, `${what}: it read more than it paid for`);
    assert.ok(charged <= tokens + underWayTokens, `${what}: more than was made`);
    assert.ok(
      tokens <= charged + sliceTokens + underWayTokens,
      `${what}: more than a checkpoint for nothing`,
    );

    const row = rows.get(ended) ?? { requests: 0, seen: 0, charged: 0, over: 0, free: 0 };
    row.requests += 1;
    row.seen += tokens;
    row.charged += charged;
    row.over = Math.max(row.over, charged - tokens);
    row.free = Math.max(row.free, tokens - charged);
    rows.set(ended, row);
  }
  assert.ok(receipts.size <= unanswered, `${receipts.size} receipts of requests that no client knows of`);
  for (const receipt of receipts.values()) {
    const charged = Number(receipt.completion_tokens);
    assert.ok(charged <= underWayTokens, `${receipt.id} saw nothing, and paid for ${charged} tokens`);
  }

  console.log("\nended     requests  tokens seen  tokens charged  most charged above  most not charged");
  for (const [ended, row] of rows) {
    const cells = [row.requests, row.seen, row.charged, row.over, row.free];
    const widths = [8, 11, 14, 18, 16];
    console.log(
      [ended.padEnd(8), ...cells.map((cell, n) => String(cell).padStart(widths[n] ?? 0))].join("  "),
    );
  }
  console.log(
    `${unanswered} more were cut off before they were answered, and paid for nothing that they did not see.`,
  );
}
