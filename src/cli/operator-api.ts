/**
 * The operator API, as commands use it: each command is a request. It goes
 *
 * 1. to the service that `--server` or INKWELL_SERVER names, with an operator key. No
 *    configuration is read;
 * 2. otherwise to the service of the data folder, with the operator token. A process with its id
 *    must be alive (operator-address.ts);
 * 3. otherwise to the same application in this process, on the opened database
 *    (app/local-operator.ts). A service that is there and does not answer in time never leads
 *    here: it may have done what was asked.
 *
 * Only the third way loads the service and its stores.
 */
import { userInfo } from "node:os";
import { setTimeout } from "node:timers/promises";
import { type Action, requestOf } from "../actions/action.ts";
import { ApiError } from "../actions/api-error.ts";
import type { Fields } from "../actions/field.ts";
import type { Page } from "../actions/pages.ts";
import { listPlans, showTime } from "../actions/views.ts";
import { userHeader } from "../actors.ts";
import { commandVariable } from "../config/command-variables.ts";
import type { Config } from "../config/load.ts";
import { invariant, OperatorError, StoreUnavailableError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { fieldOf } from "../objects.ts";
import { noServiceHere, readOperatorAddress } from "../operator-address.ts";
import type { EpochMs } from "../units.ts";
import type { Host } from "./host.ts";
import { findToken, noToken, tokenOf } from "./operator-token.ts";
import type { Spinner } from "./spinner.ts";
import {
  type Answer,
  inProcess,
  keyHeader,
  NoAnswer,
  overHttp,
  type Sent,
  type Transport,
} from "./transport.ts";

type Json = Readonly<Record<string, unknown>>;
/** Views do not say what they result in: their callers do. */
type Asked = Pick<Action<Fields, unknown>, "id" | "http" | "input">;

interface ApiOptions {
  host: Host;
  /** Null: the service of the folder. */
  server: string | null;
  /** Turns while an answer is due. */
  spinner: Spinner;
  config(): Promise<Config>;
}

const pageRows = 500;
/** The longest silence of a service. Its slowest lists are sums over all accounts. */
const defaultSilenceMs = 120_000;
/** Loading a model takes as long as it takes. */
const unlimited = ["reloadConfiguration", "applyPlans"];
/** How long a request waits in all while it is refused by a rate. Nothing happens then. */
const waitMsMax = 180_000;

interface Way extends Transport {
  /** Null: this process. */
  url: string | null;
  /** As in `LocalOperator`, if this process answers. */
  failure(): unknown;
}

export class OperatorApi implements AsyncDisposable {
  readonly #options: ApiOptions;
  #way: Way | null = null;
  readonly #opened = new AsyncDisposableStack();
  /** The plan of an account that may make the ledger. */
  #firstPlan: string | null = null;
  /** Why the service of the folder is not asked. */
  #unasked = noServiceHere();

  constructor(options: ApiOptions) {
    this.#options = options;
  }

  /** The URL of the service. Null: none runs. */
  async url(): Promise<string | null> {
    this.#way ??= await this.#service();
    return this.#way?.url ?? null;
  }

  /** Returns the URL of the service. Throws if none runs. */
  async requireService(): Promise<string> {
    const url = await this.url();
    if (url !== null) return url;
    throw new ApiError(503, "service_unavailable", this.#unasked, null);
  }

  /** Returns the URL of the public API of the service of the folder. Throws if none runs there. */
  async publicUrl(): Promise<string> {
    const address = readOperatorAddress((await this.#options.config()).dataDir);
    if (address === null) throw new OperatorError(noServiceHere("--url and --key"));
    await this.requireService();
    return address.api;
  }

  /** Runs an action. Throws its refusal. */
  async run<Result>(action: Asked, json: Json = {}): Promise<{ result: Result; isNew: boolean }> {
    const answer = await this.#waiting(() => this.#sound(sentBy(action, json, this.#options.host)));
    return { result: jsonIn(await readWhole(answer)), isNew: answer.status === 201 };
  }

  async get<Result>(action: Asked, json: Json = {}): Promise<Result> {
    return (await this.run<Result>(action, json)).result;
  }

  /** Returns the time of the ledger, and the zone of days. */
  async clock(): Promise<{ nowMs: EpochMs; timezone: string }> {
    const { ledger_at, timezone } = await this.get<{ ledger_at: string; timezone: string }>(showTime);
    return { nowMs: Date.parse(ledger_at), timezone };
  }

  /** Opens an account, which makes the ledger if there is none and no service runs. */
  async open<Result>(action: Asked, json: Json): Promise<{ result: Result; isNew: boolean }> {
    this.#firstPlan = String(json.plan);
    return await this.run(action, json);
  }

  /** Reads the pages of a list, at most so many rows. */
  async *pages<Row, Rest = unknown>(
    action: Asked,
    json: Json = {},
    most = Number.POSITIVE_INFINITY,
  ): AsyncGenerator<Page<Row> & Rest, void, undefined> {
    let left = most;
    for (let after: string | null | undefined; after !== null && left > 0; ) {
      const limit = Math.min(pageRows, left);
      const page: Page<Row> & Rest = await this.get(action, { ...json, limit, after });
      yield page;
      left -= page.data.length;
      after = page.next;
    }
  }

  /** Returns a list as one page, at most so many rows, with what its last page has besides. */
  async list<Row, Rest = unknown>(action: Asked, json?: Json, most?: number): Promise<Page<Row> & Rest> {
    const pages = await this.#waiting(() => Array.fromAsync(this.pages<Row, Rest>(action, json, most)));
    const last = pages.at(-1);
    invariant(last !== undefined, "a list has a page");
    return { ...last, data: pages.flatMap(({ data }) => data) };
  }

  /** Returns the rows of a list, at most so many. */
  async all<Row>(action: Asked, json?: Json, most?: number): Promise<Row[]> {
    return (await this.list<Row>(action, json, most)).data;
  }

  /** Runs an action whose result is a text, and gives it as it arrives. */
  async *text(action: Asked, json: Json): AsyncGenerator<string, void, undefined> {
    yield* partsOf(await this.#waiting(() => this.#sound(sentBy(action, json, this.#options.host))));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#opened.disposeAsync();
  }

  async #waiting<T>(work: () => Promise<T>): Promise<T> {
    return await this.#options.spinner.during(() => "Waiting for the answer", work);
  }

  /** Returns the answer. Throws a refusal. */
  async #sound(sent: Sent): Promise<Answer> {
    const answer = await this.#allowed(sent);
    if (answer.status < 400 && answer.isInkwell) return answer;
    const error = fieldOf(jsonIn(await readWhole(answer)), "error");
    const [code, message, param] = ["code", "message", "param"].map((name) => fieldOf(error, name));
    if (typeof code !== "string" || typeof message !== "string") throw notInkwell();
    const failure = this.#way?.failure() ?? null;
    // This process knows why, and there is no log that says it.
    if (failure !== null && ["internal_error", "store_unavailable"].includes(code)) throw failure;
    if (code === "store_unavailable") throw new StoreUnavailableError(message);
    const hint = param === "plan" && sent.method !== "GET" ? await this.#unapplied() : "";
    throw new ApiError(answer.status, code, message + hint, typeof param === "string" ? param : null);
  }

  /** Repeats a request that a rate refuses. */
  async #allowed(sent: Sent): Promise<Answer> {
    for (let leftMs = waitMsMax; ; ) {
      const answer = await this.#ask(sent);
      if (answer.status !== 429 || !(answer.retryAfterMs <= leftMs)) return answer;
      await readWhole(answer);
      leftMs -= answer.retryAfterMs;
      await setTimeout(answer.retryAfterMs);
    }
  }

  async #ask(sent: Sent): Promise<Answer> {
    const { config, server } = this.#options;
    this.#way ??= (await this.#service()) ?? (await this.#here(await config()));
    try {
      return await this.#way.ask(sent);
    } catch (error) {
      // The service of the folder has just ended, or its address is that of an earlier one.
      const isGone = error instanceof NoAnswer && !error.isSent && server === null;
      if (!isGone || this.#way.url === null) throw error;
      this.#way = await this.#here(await config());
      return await this.#way.ask(sent);
    }
  }

  /** Null: no service runs. */
  async #service(): Promise<Way | null> {
    const { server, host, config } = this.#options;
    if (server === null) return await this.#ofDataFolder(await config());
    return elsewhere(server, commandVariable("INKWELL_OPERATOR_KEY", host.env));
  }

  /** Null: no service runs, or it has another database than the command. */
  async #ofDataFolder(config: Config): Promise<Way | null> {
    const address = readOperatorAddress(config.dataDir);
    if (address === null) return null;
    const { url, database } = address;
    const token = findToken(config);
    const { databaseText } = await import("../config/database.ts");
    const own = databaseText(config.database);
    if (database !== own)
      this.#unasked = `The service of this folder has the database ${database}, and the configuration of this command has ${own}. Run the command with the configuration of the service, or restart the service.`;
    else if (token === null) this.#unasked = noToken(config);
    else return { url, failure: () => null, ...overHttp(url, asUser(token), "directly") };
    return null;
  }

  async #here(config: Config): Promise<Way> {
    const { services } = this.#options.host;
    const plan = this.#firstPlan;
    const { requirePlan } = await import("../accounts/refusals.ts");
    // A wrong plan must not create a ledger.
    const create = plan !== null && (() => requirePlan(config.plans, plan));
    const opened = await services.openStore(config, { create });
    this.#opened.defer(() => opened.store.close());
    const { openLocalOperator } = await import("../app/local-operator.ts");
    const local = await openLocalOperator(config, opened, { operatorToken: () => tokenOf(config) });
    this.#opened.use(local);
    const { failure } = local;
    return { url: null, failure, ...inProcess(local, asUser(local.token)) };
  }

  /** Returns a sentence about plans that the configuration has and the database does not offer. */
  async #unapplied(): Promise<string> {
    const plans = fieldOf(fieldOf(await this.get(listPlans, { limit: 1 }), "configuration"), "added");
    if (!Array.isArray(plans) || plans.length === 0) return "";
    return ` The configuration has ${plans.join(", ")}, which the current plans do not offer. To make the plans of the configuration current: ${inkwell("plans apply")}`;
  }
}

function sentBy(action: Asked, json: Json, { silenceMs = defaultSilenceMs }: Host): Sent {
  const { body, ...request } = requestOf(action, json);
  return {
    ...request,
    body: body && JSON.stringify(body),
    silenceMs: unlimited.includes(action.id) ? null : silenceMs,
  };
}

/** The key belongs to the service at this URL, so nobody on the way may read it. */
function elsewhere(server: string, key: string | null): Way {
  const url = URL.canParse(server) ? new URL(server) : null;
  const isLocal = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(url?.hostname ?? "");
  const isSafe = url?.protocol === "https:" || (url?.protocol === "http:" && isLocal);
  if (!isSafe || /[?#@]/.test(server)) {
    throw new OperatorError(
      `--server (INKWELL_SERVER) must be the URL of an operator listener with https, or with http on this machine, such as https://ops.example, without a user, a query and a fragment.`,
    );
  }
  if (key === null) {
    throw new OperatorError(
      `A service at another URL needs an operator key: set INKWELL_OPERATOR_KEY. "${inkwell("operator create NAME --role ROLE")}" makes one, on the machine of the service.`,
    );
  }
  const base = server.replace(/\/+$/, "");
  const headers = keyHeader(key, "INKWELL_OPERATOR_KEY");
  return { url: base, failure: () => null, ...overHttp(base, headers, isLocal ? "directly" : {}) };
}

function asUser(token: string): Record<string, string> {
  return { authorization: `Bearer ${token}`, [userHeader]: encodeURIComponent(userName()) };
}

/** Returns the user of the command. */
export function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // In containers, the user often has no name.
    return String(process.getuid?.() ?? "unknown");
  }
}

async function* partsOf({ body }: Answer): AsyncGenerator<string, void, undefined> {
  try {
    for await (const part of body.setEncoding("utf8")) yield String(part);
  } catch (cause) {
    throw new NoAnswer("The answer broke off before its end.", { isSent: true, cause });
  }
}

async function readWhole(answer: Answer): Promise<string> {
  let text = "";
  for await (const part of partsOf(answer)) text += part;
  return text;
}

function jsonIn(body: string) {
  try {
    return JSON.parse(body);
  } catch {
    throw notInkwell();
  }
}

function notInkwell(): OperatorError {
  return new OperatorError(
    "The answer is not that of an operator listener of Inkwell. Is the URL right, and is the service of the same version as this command?",
  );
}
