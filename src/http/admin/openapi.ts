/** The OpenAPI 3.1 document of the operator API, put together from the schemas that its routes validate with. */
import type { FastifySchema, RouteOptions } from "fastify";
import Type from "typebox";
import { type OperatorCode, operatorCatalogue } from "../../accounts/refusals.ts";
import { catalogue as publicCatalogue } from "../../errors.ts";
import { isRecord } from "../openai-format/explain.ts";
import { refusedEverywhere, refusedWithBody } from "./refusals.ts";
import * as schema from "./schemas.ts";

type Json = Record<string, unknown>;
type Code = OperatorCode | keyof typeof publicCatalogue;

const error = schema.closed({
  error: schema.closed({
    message: Type.String(),
    type: Type.String(),
    param: schema.orNull(Type.String()),
    code: Type.String(),
  }),
});

/** Shown once and referred to. */
const components = new Map<unknown, string>([
  [schema.account, "Account"],
  [schema.key, "Key"],
  [schema.newKey, "NewKey"],
  [schema.balance, "Balance"],
  [schema.topup, "Topup"],
  [schema.adjustment, "Adjustment"],
  [schema.journalEntry, "JournalEntry"],
  [schema.usageRecord, "UsageRecord"],
  [schema.holdRecord, "Hold"],
  [schema.modelRecord, "Model"],
  [schema.nodeRecord, "Node"],
  [schema.auditReport, "AuditReport"],
  [error, "Error"],
]);

/** Codes of requests that are refused before their route is called. */
const refusedAtTheDoor = [
  "missing_operator_token",
  "invalid_operator_token",
  "host_not_allowed",
  "origin_not_allowed",
] as const;

/** Collects routes as they are added (`onRoute`) and gives the document of all that are below `/admin`. */
export class OpenApi {
  readonly #version: string;
  readonly #paths: Record<string, Json> = {};

  constructor(version: string) {
    this.#version = version;
  }

  add({ method, url, schema: route }: Pick<RouteOptions, "method" | "url" | "schema">): void {
    // GET routes answer HEAD too; that needs no telling.
    if (route?.operationId === undefined || typeof method !== "string" || method === "HEAD") return;
    const path = url.replace(/:(\w+)/g, "{$1}");
    this.#paths[path] ??= {};
    const operations = this.#paths[path];
    operations[method.toLowerCase()] = operationOf(route);
  }

  /** Which methods a path takes, as the header `allow` names them; empty where there is no such path. */
  methodsOf(path: string): string[] {
    const found = Object.entries(this.#paths).find(([template]) =>
      new RegExp(`^${template.replaceAll(".", "\\.").replace(/\{\w+\}/g, "[^/]+")}$`).test(path),
    );
    const methods = Object.keys(found?.[1] ?? {}).map((method) => method.toUpperCase());
    return methods.flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method]));
  }

  document(): Json {
    return {
      openapi: "3.1.0",
      info: {
        title: "Inkwell operator API",
        version: this.#version,
        description:
          "Accounts, keys, credits and receipts. Every change is safe to repeat. Amounts that end in _micro are whole micro-credits (1 credit = 1,000,000), prices credits per million tokens, times ISO 8601 in UTC. docs/operating/operator-errors.md lists the error codes.",
      },
      servers: [{ url: "/" }],
      security: [{ operatorToken: [] }],
      tags: ["accounts", "keys", "credits", "usage", "service"].map((name) => ({ name })),
      paths: this.#paths,
      components: {
        securitySchemes: { operatorToken: { type: "http", scheme: "bearer" } },
        schemas: Object.fromEntries([...components].map(([component, name]) => [name, fieldsOf(component)])),
      },
    };
  }
}

function operationOf(route: FastifySchema): Json {
  const { summary, description, operationId, tags, body } = route;
  return {
    operationId,
    tags,
    summary,
    ...(description === undefined ? {} : { description }),
    parameters: [...parametersOf(route.params, "path"), ...parametersOf(route.querystring, "query")],
    ...(body === undefined ? {} : { requestBody: { required: true, content: jsonOf(body) } }),
    responses: { ...answersOf(route), ...refusalsOf(route) },
  };
}

function parametersOf(described: unknown, place: "path" | "query"): Json[] {
  if (!Type.IsSchema(described) || !Type.IsObject(described)) return [];
  return Object.entries(described.properties).map(([name, property]) => ({
    name,
    in: place,
    required: described.required?.includes(name) ?? false,
    schema: shown(property),
  }));
}

function answersOf({ response, csv }: FastifySchema): Json {
  if (!isRecord(response)) return {};
  const answers = Object.entries(response).map(([status, body]) => [
    status,
    {
      description: status === "201" ? "Made" : "Done",
      content: { ...jsonOf(body), ...(csv === true ? { "text/csv": { schema: { type: "string" } } } : {}) },
    },
  ]);
  return Object.fromEntries(answers);
}

/** One answer for each status, which names its codes. */
function refusalsOf({ refusals = [], body }: FastifySchema): Json {
  const codes: Code[] = [
    ...refusedAtTheDoor,
    ...refusedEverywhere,
    ...(body === undefined ? [] : refusedWithBody),
    ...refusals,
  ];
  const byStatus = Map.groupBy(codes, statusOf);
  const answers = [...byStatus].map(([status, those]) => [
    String(status),
    { description: those.map((code) => `\`${code}\``).join(", "), content: jsonOf(error) },
  ]);
  return Object.fromEntries(answers);
}

function statusOf(code: Code): number {
  return { ...publicCatalogue, ...operatorCatalogue }[code].status;
}

function jsonOf(body: unknown): Json {
  return { "application/json": { schema: shown(body) } };
}

/** A schema as it is written down: components by their name, without what only our own messages need. */
function shown(part: unknown): unknown {
  const name = components.get(part);
  return name === undefined ? fieldsOf(part) : { $ref: `#/components/schemas/${name}` };
}

function fieldsOf(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(shown);
  if (!isRecord(part)) return part;
  const fields = Object.entries(part).filter(([name]) => name !== "hint");
  return Object.fromEntries(fields.map(([name, value]) => [name, shown(value)]));
}
