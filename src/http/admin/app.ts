/**
 * How a route of the operator API is written: TypeBox schemas for what it takes and gives, from which Fastify
 * validates, TypeScript knows the types, and the OpenAPI document is made (openapi.ts).
 *
 * Nothing is coerced but query strings, which know no numbers. Unknown fields are refused by their name. Answers are
 * not validated here; the tests hold each of them to its schema.
 */
import type { FastifyInstance, FastifySchemaCompiler, FastifyTypeProvider } from "fastify";
import { fastify } from "fastify";
import Type, { type Static, type TSchema } from "typebox";
import { Compile } from "typebox/compile";
import type { OperatorCode } from "../../accounts/refusals.ts";
import type { Catalog } from "../../chat/catalog.ts";
import { invariant, Refusal } from "../../errors.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { Plans } from "../../ledger/plan.ts";
import type { NodeView } from "../../store/nodes.ts";
import type { Store } from "../../store/store.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import { newRequestId } from "../../telemetry/request-record.ts";
import { refuseUnparsable } from "../error-response.ts";
import { explain } from "../openai-format/explain.ts";
import { isRecord, parseJson } from "../openai-format/json.ts";
import { closed } from "./schemas.ts";

declare module "fastify" {
  interface FastifySchema {
    /** Refusals beside those that every route has. */
    refusals?: readonly OperatorCode[];
    /** The good answer can be had as CSV too. */
    csv?: boolean;
  }
}

interface TypeBoxProvider extends FastifyTypeProvider {
  validator: this["schema"] extends TSchema ? Static<this["schema"]> : unknown;
  serializer: this["schema"] extends TSchema ? Static<this["schema"]> : unknown;
}

/** What the routes work with. */
export interface AdminDependencies {
  store: Store;
  ledger: Ledger;
  plans: Plans;
  catalog: Catalog;
  metrics: Pick<Metrics, "audited">;
  /** The processes on the same database, this one included. */
  nodes(): readonly NodeView[];
}

export type AdminApp = ReturnType<typeof createApp>;

/** No request of an operator needs more. */
export const adminBodyBytesMax = 64 * 1024;

/** As much as Node takes of a head: no part of an address is longer. */
const addressBytesMax = 16 * 1024;

/** Most time that a client may take to send one whole request. */
const requestTimeoutMs = 30_000;

export function createApp() {
  const app: FastifyInstance = fastify({
    logger: false,
    forceCloseConnections: true,
    genReqId: newRequestId,
    bodyLimit: adminBodyBytesMax,
    requestTimeout: requestTimeoutMs,
    clientErrorHandler: (error, socket) => refuseUnparsable(error, socket, false),
    routerOptions: { maxParamLength: addressBytesMax },
    // The router would respond to other targets itself, in a form of its own and before any hook.
    rewriteUrl: ({ url = "/" }) => (isReadable(url) ? url : "/"),
  });
  // A page of another origin can send text without asking first; JSON it cannot.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", { parseAs: "buffer" }, (_request, body, done) => {
    // Clients that announce JSON whatever they send mean nothing by an empty body.
    if (body.length === 0) return done(null, undefined);
    let value: unknown;
    try {
      value = parseJson(Buffer.from(body));
    } catch (error) {
      invariant(error instanceof Refusal, "what is no JSON is refused as such");
      return done(error);
    }
    done(null, value);
  });
  app.addHook("preValidation", async ({ body, routeOptions: { schema } }) => {
    if (schema?.body !== undefined && body === undefined) {
      throw new Refusal(
        "invalid_json",
        "The body is empty; send a JSON object, with the header content-type: application/json.",
      );
    }
  });
  app.addHook("onRoute", (route) => {
    // What takes nothing in its query drops nothing from it either.
    if (route.schema?.operationId !== undefined) route.schema.querystring ??= closed({});
  });
  app.setValidatorCompiler(validatorOf);
  app.setSerializerCompiler(() => (body) => JSON.stringify(body));
  return app.withTypeProvider<TypeBoxProvider>();
}

function isReadable(target: string): boolean {
  const isAbsolute = /^https?:\/\//i.test(target);
  if (isAbsolute && !(/^https?:\/\/[^/?]/i.test(target) && URL.canParse(target))) return false;
  try {
    decodeURIComponent(target);
    return true;
  } catch {
    return false;
  }
}

const validatorOf: FastifySchemaCompiler<unknown> = ({ schema, httpPart }) => {
  invariant(Type.IsSchema(schema), "routes are described with TypeBox");
  const validator = Compile(schema);
  return (received: unknown) => {
    const value = httpPart === "querystring" ? withNumbers(schema, received) : received;
    if (validator.Check(value)) return { value };
    const fault = explain(schema, value, "");
    invariant(fault !== null, "what the schema turns down can be explained");
    return { error: fault };
  };
};

/** Whole numbers of a query string, where the schema wants such; what is none is left for the schema to refuse. */
function withNumbers(schema: TSchema, query: unknown): unknown {
  if (!isRecord(query) || !Type.IsObject(schema)) return query;
  const entries = Object.entries(query).map(([name, text]) => {
    const property = schema.properties[name];
    const isNumber = Type.IsInteger(property) && typeof text === "string" && /^\d{1,15}$/.test(text);
    return [name, isNumber ? Number(text) : text];
  });
  return Object.fromEntries(entries);
}
