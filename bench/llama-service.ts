/**
 * The whole service with the embedded engine, in a process and a folder of its own, and a key for
 * each of some accounts.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, request } from "undici";

const root = join(import.meta.dirname, "..");

export interface LlamaServiceOptions {
  /** A model's file. */
  model: string;
  threads?: number;
  parallel: number;
  contextWindow: number;
  /** Default 1. */
  accounts?: number;
}

export interface LlamaService extends AsyncDisposable {
  url: string;
  /** One for each account. */
  keys: string[];
}

export async function startLlamaService(options: LlamaServiceOptions): Promise<LlamaService> {
  const { model, threads, parallel, contextWindow, accounts = 1 } = options;
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-"));
  const engine = {
    engine: "llama",
    source: model,
    context_window: contextWindow,
    parallel,
    ...(threads === undefined ? {} : { threads }),
    price: { prompt: 1, completion: 1 },
  };
  const none = { credits: 0, every: "P1D" };
  const config = {
    listen: { port: 0 },
    operator: { port: 0, token: "bench-operator-token" },
    log: { level: "warn" },
    plans: {
      bench: { base: { credits: 9_000_000, every: "P1D", align: "opening" }, overage: none, models: ["*"] },
    },
    models: { bench: engine },
  };
  // JSON is YAML too.
  await writeFile(join(folder, "inkwell.yaml"), JSON.stringify(config));
  const child = spawn(process.execPath, [join(root, "src", "cli", "inkwell.ts"), "serve"], {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = new Promise((resolve) => child.on("close", resolve));
  let output = "";
  const first = await new Promise<{ url: string; operator: string; key: string }>((resolve, reject) => {
    closed.then((code) => reject(new Error(`the service ended with ${code}`)));
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk;
      const url = /API +(http:\S+)\/v1/.exec(output)?.[1];
      const operator = /Operator +(http:\/\/[^\s/]+)/.exec(output)?.[1];
      const file = /^ +(\S*first-key)$/m.exec(output)?.[1];
      if (url === undefined || operator === undefined || file === undefined) return;
      resolve({ url, operator, key: readFileSync(join(folder, file), "utf8").trim() });
    });
  });
  const keys = [first.key];
  for (let n = 1; n < accounts; n += 1) keys.push(await newKey(first.operator, `account-${n}`));
  const stop = async () => {
    child.kill("SIGTERM");
    await closed;
    await rm(folder, { recursive: true, force: true });
  };
  return { url: first.url, keys, [Symbol.asyncDispose]: stop };
}

const agent = new Agent({ connections: 256, headersTimeout: 600_000, bodyTimeout: 600_000 });

export interface StreamRequest {
  account: number;
  content: string;
  maxTokens: number;
  signal: AbortSignal;
}

/** Requests a streamed answer. */
export function requestStream(service: LlamaService, { account, content, maxTokens, signal }: StreamRequest) {
  return request(`${service.url}/v1/chat/completions`, {
    method: "POST",
    dispatcher: agent,
    signal,
    headers: { authorization: `Bearer ${service.keys[account]}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "bench",
      stream: true,
      temperature: 0,
      max_tokens: maxTokens,
      messages: [{ role: "user", content }],
    }),
  });
}

/** Calls `onToken` for each token of a streamed answer. */
export async function readTokens(
  { statusCode, body }: Awaited<ReturnType<typeof requestStream>>,
  onToken: () => void,
): Promise<void> {
  if (statusCode !== 200) throw new Error(`${statusCode}: ${await body.text()}`);
  for await (const chunk of body.setEncoding("utf8")) {
    const text: string = chunk;
    for (const _ of text.matchAll(/"content":"[^"]/g)) onToken();
  }
}

async function newKey(operator: string, account: string): Promise<string> {
  const post = async (path: string, body: object): Promise<string> => {
    const response = await request(`${operator}${path}`, {
      method: "POST",
      headers: { authorization: "Bearer bench-operator-token", "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const text = await response.body.text();
    if (response.statusCode >= 300) throw new Error(`${path}: ${response.statusCode} ${text}`);
    return text;
  };
  await post("/admin/accounts", { id: account, plan: "bench" });
  const text = await post(`/admin/accounts/${account}/keys`, { operation_id: `key-of-${account}` });
  const key = /ink_\w{40}/.exec(text)?.[0];
  if (key === undefined) throw new Error(`no key came back: ${text}`);
  return key;
}
