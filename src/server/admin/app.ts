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
import type { Ledger } from "../../credits/ledger.ts";
import type { Plans } from "../../credits/plan.ts";
import { invariant } from "../../errors.ts";
import type { Catalog } from "../../generation/catalog.ts";
import type { Store } from "../../store/store.ts";
import { explain, isRecord } from "../../wire/explain.ts";
import { newRequestId } from "../request-id.ts";
import type { OperatorCode } from "./refusals.ts";

declare module "fastify" {
  interface FastifySchema {
    /** For the OpenAPI document: what the route does, in a line. */
    summary?: string;
    description?: string;
    operationId?: string;
    tags?: readonly string[];
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
}

export type AdminApp = ReturnType<typeof createApp>;

/** No request of an operator needs more. */
export const adminBodyBytesMax = 64 * 1024;

export function createApp() {
  const app: FastifyInstance = fastify({
    logger: false,
    forceCloseConnections: true,
    genReqId: newRequestId,
    bodyLimit: adminBodyBytesMax,
    routerOptions: { maxParamLength: 256 },
  });
  // A page of another origin can send text without asking first; JSON it cannot.
  app.removeContentTypeParser("text/plain");
  app.setValidatorCompiler(validatorOf);
  app.setSerializerCompiler(() => (body) => JSON.stringify(body));
  return app.withTypeProvider<TypeBoxProvider>();
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
