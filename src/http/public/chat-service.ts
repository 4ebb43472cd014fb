/**
 * The chat requests of this process, whichever listener they arrive at: one set of limits,
 * uploads, running requests and allowances for refused work, and one path through them. A listener
 * adds how it authenticates a request, and whether its answers show what they cost.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from "fastify";
import type { Logger } from "pino";
import type { Caller } from "../../accounts/keys.ts";
import type { Catalog } from "../../chat/catalog.ts";
import { isForCaller, Refusal } from "../../errors.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import { type RequestObserver, RequestRecord } from "../../telemetry/request-record.ts";
import { notJson } from "../error-response.ts";
import { type AnswerStyle, ChatEndpoint, type ChatOptions } from "./chat-endpoint.ts";
import { errorHandler } from "./error-handler.ts";
import { RefusalAllowance, type RefusalLimits } from "./refusal-allowance.ts";
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
  /** Reads the rights of a request again, as the hooks of the listener have done. */
  authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Returns the account and key of a request that is authenticated. */
  findCaller(request: FastifyRequest): Promise<Caller>;
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
  serve(app: FastifyInstance, { path, schema, authenticate, findCaller }: ChatRoute): void {
    app.register(async (scope) => {
      readBodiesInHandlers(scope);
      scope.addHook("onRequest", async (request, reply) => {
        const caller = await findCaller(request);
        // Node has already asked for a body that the client held back.
        const context = this.begin(request, { path, isChat: true, holdsBody: false });
        context.record.caller = caller;
        context.callerNow = async () => {
          await authenticate(request, reply);
          return await findCaller(request);
        };
        this.admit(request, reply);
      });
      scope.addHook("onSend", async (_request, reply) => {
        reply.headers(this.requests.connectionHeaders());
      });
      const refuse = errorHandler(this.#logger);
      scope.setErrorHandler((error, request, reply) => {
        // Refused by the listener: before it was a chat request, or again after its body.
        if (!hasContext(request)) throw error;
        if (error instanceof Refusal && !isForCaller(error)) {
          contextOf(request).finish(error.status, null);
          throw error;
        }
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
