/**
 * The chat requests of this process, whichever listener they arrive at: one set of limits,
 * uploads, running requests and allowances for refused work, and one path through them. A listener
 * adds how it authenticates a request, and whether its answers show what they cost.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from "fastify";
import type { Logger } from "pino";
import type { Caller } from "../../accounts/keys.ts";
import type { Catalog } from "../../chat/catalog.ts";
import { Refusal } from "../../errors.ts";
import type { Ledger } from "../../ledger/batcher.ts";
import { type RequestObserver, RequestRecord, type Work } from "../../telemetry/request-record.ts";
import { notJson } from "../error-response.ts";
import { type AnswerStyle, ChatEndpoint, type ChatOptions } from "./chat-endpoint.ts";
import { errorHandler } from "./error-handler.ts";
import { callerOf, contextDecorator, contextOf, hasContext, RequestContext } from "./request-context.ts";
import { RunningRequests } from "./running-requests.ts";
import { tooLarge, type UploadLimits, Uploads, type UploadTimes } from "./uploads.ts";

export type ChatLimits = UploadLimits & RefusalLimits & ChatOptions;

interface ChatServiceDependencies {
  catalog: Catalog;
  ledger: Ledger;
  logger: Logger;
  observers: readonly RequestObserver[];
  limits: ChatLimits;
  /** Time without a heartbeat after which a hold is ended by its last checkpoint. */
  holdTtlMs: number;
  /** For tests: shorter times. */
  uploadTimes?: UploadTimes | undefined;
}

/** The chat of a listener other than the public one. */
interface ChatRoute {
  path: string;
  /** Documents the route. */
  schema: FastifySchema;
  /** Returns the account and key of a request that the listener has authenticated. */
  callerOf(request: FastifyRequest): Caller;
}

export class ChatService {
  readonly requests = new RunningRequests();
  readonly uploads: Uploads;
  readonly #logger: Logger;
  readonly #observers: readonly RequestObserver[];
  readonly #allowance: RefusalAllowance;
  readonly #endpoint: ChatEndpoint;
  #bodyBytesMax: number;

  constructor(dependencies: ChatServiceDependencies) {
    const { catalog, ledger, logger, observers, limits, holdTtlMs, uploadTimes } = dependencies;
    this.#logger = logger;
    this.#observers = observers;
    this.#bodyBytesMax = limits.bodyBytesMax;
    this.#allowance = new RefusalAllowance(limits);
    this.uploads = new Uploads(limits, uploadTimes);
    this.#endpoint = new ChatEndpoint({ catalog, ledger, holdTtlMs }, this.requests, logger, limits);
  }

  /** Changes the limits. Requests that have been admitted keep the limits of their bodies. */
  configure(limits: ChatLimits): void {
    this.#bodyBytesMax = limits.bodyBytesMax;
    this.#allowance.configure(limits);
    this.uploads.configure(limits);
    this.#endpoint.configure(limits);
  }

  /**
   * Starts the record of a request. `path`: the endpoint, or null for any other path. `holdsBody`:
   * the client sends its body only after it has been asked for it (`expect: 100-continue`).
   */
  begin(
    request: FastifyRequest,
    { path, isChat, holdsBody }: { path: string | null; isChat: boolean; holdsBody: boolean },
  ): RequestContext {
    const { id: requestId, method, headers } = request;
    const traceparent = typeof headers.traceparent === "string" ? headers.traceparent : null;
    const record = new RequestRecord({ requestId, method, path, isChat, traceparent }, this.#observers);
    const charge = this.#allowance.charge.bind(this.#allowance);
    const context = new RequestContext(record, charge, holdsBody);
    request.setDecorator(contextDecorator, context);
    return context;
  }

  /** Checks what the headers of an authenticated request say, and admits its body. */
  admit(request: FastifyRequest, reply: FastifyReply): void {
    const context = contextOf(request);
    const caller = callerOf(request);
    this.#allowance.require(caller);
    context.upload = this.uploads.admit(caller, request.headers);
    checkBody(request.headers, this.#bodyBytesMax);
    if (context.holdsBody) reply.raw.writeContinue();
    context.holdsBody = false;
  }

  /** Reads the body, generates the answer, and sends it. */
  handle(request: FastifyRequest, reply: FastifyReply, style: AnswerStyle): Promise<void> {
    return this.#endpoint.handle(request, reply, style);
  }

  /**
   * Adds the chat to a listener whose hooks authenticate each request. Requests pass the same
   * limits as on the public listener, and are refused with the same codes. Answers are streams,
   * and show what they cost.
   */
  serve(app: FastifyInstance, { path, schema, callerOf: caller }: ChatRoute): void {
    app.register(async (scope) => {
      readBodiesInHandlers(scope);
      scope.addHook("onRequest", async (request, reply) => {
        // Node has already asked for a body that the client held back.
        const context = this.begin(request, { path, isChat: true, holdsBody: false });
        context.record.caller = caller(request);
        this.admit(request, reply);
      });
      scope.addHook("onSend", async (_request, reply) => {
        reply.headers(this.requests.connectionHeaders());
      });
      const refuse = errorHandler(this.#logger);
      scope.setErrorHandler((error, request, reply) => {
        // Refused by a hook of the listener, before it was a chat request.
        if (!hasContext(request)) throw error;
        refuse(error, request, reply);
      });
      scope.post(path, { schema }, (request, reply) => this.handle(request, reply, "stream with cost"));
    });
  }
}

/** Lets handlers read the bodies of an app's requests themselves, within the limits of uploads. */
export function readBodiesInHandlers(app: FastifyInstance): void {
  app.decorateRequest(contextDecorator);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _body, done) => done(null));
}

/** Checks what the headers say about the body. */
function checkBody(headers: FastifyRequest["headers"], bodyBytesMax: number): void {
  if (Number(headers["content-length"] ?? 0) > bodyBytesMax) throw tooLarge(bodyBytesMax);
  const type = headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/json") throw notJson();
  const encoding = headers["content-encoding"]?.trim().toLowerCase();
  if (encoding !== undefined && encoding !== "" && encoding !== "identity") {
    throw new Refusal("unsupported_media_type", "Send the body as it is, without content-encoding.");
  }
}

interface RefusalLimits {
  /** Body bytes of refused requests of one key. */
  refusedBytesPerMinute: number;
  /** Processor time of the main thread for refused requests of one key. */
  refusedMsPerMinute: number;
}

const accountFactor = 4;

const minuteMs = 60_000;

/**
 * Most keys, and most accounts, with a level, which takes about 200 bytes; and the number at which
 * levels of zero are removed for the first time.
 */
const levels = { max: 50_000, sweepFrom: 1_000 };

/**
 * Limits the work on chat requests that end in a refusal: bytes of their bodies and processor
 * time. An account may have four times as much as a key. Refused requests are free, so without a
 * limit a key without credits could take the main thread from all other callers.
 *
 * A burst may use the allowance of a whole minute. The number of refusals does not count, because
 * small invalid requests are cheap. The levels are in memory, for this process only, and are
 * forgotten when they reach zero.
 */
export class RefusalAllowance {
  readonly #keys: Levels;
  readonly #accounts: Levels;

  constructor(limits: RefusalLimits, nowMs: () => number = () => performance.now()) {
    const { key, account } = allowed(limits);
    this.#keys = new Levels("this key", key, nowMs);
    this.#accounts = new Levels("this account", account, nowMs);
  }

  /** Changes the limits. Work that was done before still counts. */
  configure(limits: RefusalLimits): void {
    const { key, account } = allowed(limits);
    this.#keys.limit = key;
    this.#accounts.limit = account;
  }

  /** Keys and accounts with a level. */
  get size(): number {
    return this.#keys.size + this.#accounts.size;
  }

  /** Throws `too_many_refusals` if the key or its account has used up its allowance. */
  require({ keyId, accountId }: Caller): void {
    this.#keys.require(keyId);
    this.#accounts.require(accountId);
  }

  /** Counts the work on a refused request. */
  charge({ keyId, accountId }: Pick<Caller, "keyId" | "accountId">, work: Work): void {
    this.#keys.charge(keyId, work);
    this.#accounts.charge(accountId, work);
  }
}

/** Returns the work that a key and an account may cause in a minute. */
function allowed({ refusedBytesPerMinute: bytes, refusedMsPerMinute: ms }: RefusalLimits) {
  return { key: { bytes, ms }, account: { bytes: accountFactor * bytes, ms: accountFactor * ms } };
}

/** Work that still counts. It decreases steadily, by the limit in a minute. */
interface Level extends Work {
  atMs: number;
}

class Levels {
  limit: Work;
  readonly #whose: string;
  readonly #nowMs: () => number;
  /** In the order in which they were added. */
  readonly #levels = new Map<string, Level>();
  #sweepAt = levels.sweepFrom;

  constructor(whose: string, limit: Work, nowMs: () => number) {
    this.#whose = whose;
    this.limit = limit;
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#levels.size;
  }

  require(id: string): void {
    const level = this.#levels.get(id);
    if (level === undefined || this.#lower(id, level)) return;
    const { bytes, ms } = this.limit;
    const waitMs = Math.max(waitMsFor(level.bytes, bytes), waitMsFor(level.ms, ms));
    if (waitMs === 0) return;
    const seconds = Math.ceil(waitMs / 1000);
    throw new Refusal(
      "too_many_refusals",
      `Refused requests of ${this.#whose} took too many bytes or too much time. The limit is ${bytes} bytes and ${ms} ms of processor time per minute. Correct the requests as their errors say, and try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }

  charge(id: string, { bytes, ms }: Work): void {
    const level = this.#levels.get(id) ?? { bytes: 0, ms: 0, atMs: this.#nowMs() };
    this.#lower(id, level);
    // At most twice the limit, so that the wait fits into the 60 s that `retry-after` can express.
    level.bytes = Math.min(level.bytes + bytes, 2 * this.limit.bytes);
    level.ms = Math.min(level.ms + ms, 2 * this.limit.ms);
    if (level.bytes === 0 && level.ms === 0) return;
    this.#levels.set(id, level);
    if (this.#levels.size > this.#sweepAt) this.#sweep();
  }

  /** Lowers the level by the time that has passed. At zero, removes it and returns true. */
  #lower(id: string, level: Level): boolean {
    const nowMs = this.#nowMs();
    const minutes = (nowMs - level.atMs) / minuteMs;
    level.bytes = Math.max(0, level.bytes - minutes * this.limit.bytes);
    level.ms = Math.max(0, level.ms - minutes * this.limit.ms);
    level.atMs = nowMs;
    const isZero = level.bytes === 0 && level.ms === 0;
    if (isZero) this.#levels.delete(id);
    return isZero;
  }

  /**
   * Removes levels of zero, and the oldest levels if there are too many. Runs only when their
   * number has doubled.
   */
  #sweep(): void {
    for (const [id, level] of this.#levels) this.#lower(id, level);
    for (const id of this.#levels.keys()) {
      if (this.#levels.size <= levels.max / 2) break;
      this.#levels.delete(id);
    }
    this.#sweepAt = Math.max(levels.sweepFrom, 2 * this.#levels.size);
  }
}

/** Returns the time until the level is below the limit. */
function waitMsFor(level: number, limit: number): number {
  return level < limit ? 0 : Math.max(1, ((level - limit) / limit) * minuteMs);
}
