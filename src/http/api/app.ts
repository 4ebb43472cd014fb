/**
 * The Fastify instance of the operator API, and that of the portal's API. Each route has TypeBox
 * schemas for its request and responses. Fastify validates with them, TypeScript infers types from
 * them, and the OpenAPI document contains them (openapi.ts).
 *
 * Only numbers in query strings are converted. Unknown fields are refused by name. Responses are
 * not validated here; the tests check each response against its schema.
 */
import type { ServerResponse } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type {
  FastifyInstance,
  FastifyRequest,
  FastifySchema,
  FastifySchemaCompiler,
  FastifyTypeProvider,
  RouteShorthandOptions,
} from "fastify";
import { fastify } from "fastify";
import Type, { type Static, type TSchema } from "typebox";
import { Compile } from "typebox/schema";
import { closed } from "../../accounts/json-objects.ts";
import type { Role } from "../../actors.ts";
import { type Code, invariant, Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import { isRecord } from "../../objects.ts";
import { tryDecode } from "../../percent-encoding.ts";
import { newRequestId } from "../../telemetry/request-record.ts";
import { dropIfIdle } from "../connections.ts";
import { refuseUnparsable } from "../error-response.ts";
import { explain } from "../openai-format/explain.ts";
import { parseJson } from "../openai-format/request.ts";
import { schemaController } from "../schema-compilers.ts";

declare module "fastify" {
  interface FastifySchema {
    /** The role that it needs. A route of operators that has none needs `owner`. */
    role?: Role;
    /** Codes of the route, in addition to the codes of all routes. */
    refusals?: readonly Code[];
    /** The route can respond with CSV too. */
    csv?: boolean;
    /** The route responds with server-sent events, whose data the response describes. */
    events?: boolean;
  }
}

interface TypeBoxProvider extends FastifyTypeProvider {
  validator: this["schema"] extends TSchema ? Static<this["schema"]> : unknown;
  serializer: this["schema"] extends TSchema ? Static<this["schema"]> : unknown;
}

export type RouteSettings = Pick<RouteShorthandOptions, "bodyLimit" | "config" | "preHandler">;

/**
 * Returns the options of a route: the schemas of its operation, the texts for the OpenAPI
 * document, and settings of Fastify.
 */
export function route<const S extends FastifySchema>(
  operationId: string,
  schema: S,
  settings: RouteSettings = {},
) {
  return { ...settings, schema: { operationId, ...schema } };
}

export type ApiApp = ReturnType<typeof createApiApp>;

/** Requests to these APIs are small. */
export const apiBodyBytesMax = 64 * 1024;

/** Limit of Node for the head of a request, so no part of a path is longer. */
const pathBytesMax = 16 * 1024;

/** Time for a client to send one whole request. */
const requestTimeoutMs = 30_000;

/** How often Node looks for connections that have exceeded their times. */
const connectionsCheckMs = 2_000;

/**
 * `isTrusted`: whether a proxy with this address names its client in `X-Forwarded-For`. Default:
 * none does. `idleMs`: time in which a client reads nothing of its response.
 */
export function createApiApp(isTrusted?: (address: string) => boolean, idleMs: number = limits.unread.most) {
  /** The unfinished responses of each connection. */
  const responses = new WeakMap<Duplex, Set<ServerResponse>>();
  const isAnswering = (socket: Duplex) =>
    [...(responses.get(socket) ?? [])].some(
      ({ headersSent, writableEnded }) => headersSent && !writableEnded,
    );
  const app: FastifyInstance = fastify({
    logger: false,
    forceCloseConnections: true,
    genReqId: newRequestId,
    trustProxy: isTrusted ?? false,
    bodyLimit: apiBodyBytesMax,
    requestTimeout: requestTimeoutMs,
    http: { headersTimeout: limits.headers.most, connectionsCheckingInterval: connectionsCheckMs },
    clientErrorHandler: (error, socket) => refuseUnparsable(error, socket, isAnswering(socket)),
    routerOptions: { maxParamLength: pathBytesMax },
    schemaController,
    // For an unreadable path, the router would respond in its own format, before any hook.
    rewriteUrl: ({ url = "/" }) => (isReadable(url) ? url : "/"),
  });
  app.addHook("onRequest", async ({ raw: { socket } }, { raw: response }) => {
    const ofSocket = responses.getOrInsertComputed(socket, () => new Set()).add(response);
    response.once("close", () => ofSocket.delete(response));
  });
  app.addHook("onSend", async ({ socket }, { raw: response }) => {
    // Commands have requests without a connection.
    if (socket instanceof Socket) dropIfIdle(response, idleMs);
  });
  // A web page can send text to another origin without a pre-flight request, but not JSON.
  app.removeAllContentTypeParsers();
  // Some clients announce JSON with every request, even without a body.
  const parse = async (_request: FastifyRequest, body: Buffer) =>
    body.length === 0 ? undefined : parseJson(body);
  app.addContentTypeParser("application/json", { parseAs: "buffer" }, parse);
  app.addHook("preValidation", async ({ body, routeOptions: { schema } }) => {
    if (schema?.body !== undefined && body === undefined) {
      throw new Refusal(
        "invalid_json",
        "The body is empty. Send a JSON object, with the header content-type: application/json.",
      );
    }
  });
  app.addHook("onRoute", (route) => {
    // Routes without a query schema refuse all query parameters.
    if (route.schema?.operationId !== undefined) route.schema.querystring ??= closed({});
  });
  app.setValidatorCompiler(validatorOf);
  app.setSerializerCompiler(() => (body) => JSON.stringify(body));
  return app.withTypeProvider<TypeBoxProvider>();
}

function isReadable(target: string): boolean {
  const isAbsolute = /^https?:\/\//i.test(target);
  if (isAbsolute && !(/^https?:\/\/[^/?]/i.test(target) && URL.canParse(target))) return false;
  return tryDecode(target) !== undefined;
}

const validatorOf: FastifySchemaCompiler<unknown> = ({ schema, httpPart }) => {
  invariant(Type.IsSchema(schema), "routes are described with TypeBox");
  // Compiled for the first request: those of all routes would take a third of a listener's start.
  let validator: ReturnType<typeof Compile> | null = null;
  return (received: unknown) => {
    validator ??= Compile(schema);
    const value = httpPart === "querystring" ? withNumbers(schema, received) : received;
    if (validator.Check(value)) return { value };
    const fault = explain(schema, value, "");
    invariant(fault !== null, "a value that fails the check has a fault");
    return { error: fault };
  };
};

/**
 * Converts the parameters that the schema declares as whole numbers. Other text stays, and the
 * schema refuses it.
 */
function withNumbers(schema: TSchema, query: unknown): unknown {
  if (!isRecord(query) || !Type.IsObject(schema)) return query;
  const entries = Object.entries(query).map(([name, text]) => {
    const property = schema.properties[name];
    const isNumber = Type.IsInteger(property) && typeof text === "string" && /^\d{1,15}$/.test(text);
    return [name, isNumber ? Number(text) : text];
  });
  return Object.fromEntries(entries);
}
