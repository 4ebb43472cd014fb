/**
 * The whole service as an operator starts it, in a process and a folder of its own, and a key for
 * each of some accounts.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { request } from "undici";
import { entry } from "../test/fixtures/program.ts";

export interface ServiceOptions {
  /** Parts of its configuration. */
  config: { models: object; database?: string; log?: object; workers?: number };
  /** Default 1. */
  accounts?: number;
  /** The only core that it may use. Default: all. */
  core?: string;
}

export interface Service extends AsyncDisposable {
  url: string;
  port: number;
  /** One for each account. */
  keys: string[];
  process: ChildProcess;
  folder: string;
  /** Opens as many more accounts. */
  addAccounts(count: number): Promise<void>;
}

export async function startService({ config, accounts = 1, core }: ServiceOptions): Promise<Service> {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-"));
  const none = { credits: 0, every: "P1D" };
  const whole = {
    listen: { port: 0 },
    operator: { port: 0, token: "bench-operator-token" },
    plans: {
      bench: { base: { credits: 9_000_000, every: "P1D", align: "opening" }, overage: none, models: ["*"] },
    },
    ...config,
  };
  // JSON is YAML too.
  await writeFile(join(folder, "inkwell.yaml"), JSON.stringify(whole));
  const command = [process.execPath, entry, "serve"];
  if (core !== undefined) command.unshift("taskset", "-c", core);
  const [file = "", ...args] = command;
  const log = openSync(join(folder, "log"), "a");
  const child = spawn(file, args, { cwd: folder, stdio: ["ignore", "pipe", log] });
  closeSync(log);
  const { stdout } = child;
  if (stdout === null) throw new Error("the service has a pipe for its output");
  const closed = new Promise((resolve) => child.on("close", resolve));
  let output = "";
  const first = await new Promise<{ url: string; operator: string; key: string }>((resolve, reject) => {
    closed.then((code) => {
      // It can be too long to be read as a whole.
      const why = execFileSync("tail", ["-c", "4000", join(folder, "log")], { encoding: "utf8" });
      reject(new Error(`the service ended with ${code}: ${why}`));
    });
    stdout.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk;
      const url = /API +(http:\S+)\/v1/.exec(output)?.[1];
      const operator = /Operator +(http:\/\/[^\s/]+)/.exec(output)?.[1];
      const file = /^ +(\S*first-key)$/m.exec(output)?.[1];
      if (url === undefined || operator === undefined || file === undefined) return;
      resolve({ url, operator, key: readFileSync(join(folder, file), "utf8").trim() });
    });
  });
  const keys = [first.key];
  const addAccounts = async (count: number) => {
    for (let n = 0; n < count; n += 1) keys.push(await newKey(first.operator, `account-${keys.length}`));
  };
  await addAccounts(accounts - 1);
  const stop = async () => {
    child.kill("SIGTERM");
    await closed;
    await rm(folder, { recursive: true, force: true });
  };
  const port = Number(new URL(first.url).port);
  return { url: first.url, port, keys, process: child, folder, addAccounts, [Symbol.asyncDispose]: stop };
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
