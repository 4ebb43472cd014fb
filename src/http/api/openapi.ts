/**
 * The OpenAPI 3.1 documents of the operator API and of the portal's API. @fastify/swagger derives
 * them from the schemas that the routes validate with; this file adds the components, and the
 * error responses of each route with their codes.
 */
import swagger from "@fastify/swagger";
import type { FastifyInstance, FastifySchema } from "fastify";
import Type from "typebox";
import { closed, component, components, orNull } from "../../accounts/json-objects.ts";
import { type Code, catalogue, invariant } from "../../errors.ts";
import { isRecord } from "../../objects.ts";
import type { ApiApp } from "./app.ts";
import { refusedEverywhere, refusedWithBody } from "./refusals.ts";

const error = component("Error", {
  error: closed({
    message: Type.String(),
    type: Type.String(),
    param: orNull(Type.String()),
    code: Type.String(),
  }),
});

const unattendedHeader = {
  name: "X-Inkwell-Unattended",
  in: "header" as const,
  description:
    "`1`: a page sends the request by itself, so it does not prolong the session. Other values are ignored.",
  schema: { type: "string" as const, enum: ["1"] },
};

interface ApiDescription<Routes> {
  title: string;
  description: string;
  version: string;
  /** Name of the cookie over plain http, and the setting that makes it a `__Host-` cookie. */
  cookieName: string;
  urlSetting: string;
  /** Whether requests may have the operator token in place of a session. */
  acceptsToken: boolean;
  /** The names of the groups are the tags of their routes. */
  groups: Readonly<Record<string, Routes>>;
  /** Codes of requests that are refused before their route is called. */
  refusedBeforeRouting: readonly Code[];
}

/**
 * Documents the routes that are registered after this call and have an `operationId`. `add`
 * registers those of a group.
 */
export function documentRoutes<Routes>(
  app: ApiApp,
  api: ApiDescription<Routes>,
  add: (routes: Routes, group: ApiApp) => void,
): void {
  const { title, description, version, cookieName, groups, refusedBeforeRouting } = api;
  const bySession = { session: [], requestHeader: [] };
  /** Ids of the operations that prolong a session. */
  const prolonging = new Set<string>();
  app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title,
        version,
        description: `${description} Amounts that end in _micro are whole micro-credits (1 credit = 1,000,000). Prices are credits per million tokens. Times are ISO 8601 in UTC. docs/operating/operator-errors.md explains the error codes.`,
      },
      servers: [{ url: "/" }],
      security: [...(api.acceptsToken ? [{ operatorToken: [] }] : []), bySession],
      tags: Object.keys(groups).map((name) => ({ name })),
      components: {
        securitySchemes: {
          ...(api.acceptsToken ? { operatorToken: { type: "http", scheme: "bearer" } } : {}),
          session: {
            type: "apiKey",
            in: "cookie",
            name: cookieName,
            description: `\`__Host-${cookieName}\` if \`${api.urlSetting}\` is https.`,
          },
          requestHeader: {
            type: "apiKey",
            in: "header",
            name: "X-Inkwell-Request",
            description:
              "43 random letters and digits (32 bytes in base64url) that the client chooses before it signs in, and keeps for the session. A cookie counts only with the header that it was given to.",
          },
        },
        parameters: { unattended: unattendedHeader },
        schemas: Object.fromEntries([...components].map(([schema, name]) => [name, shownFields(schema)])),
      },
    },
    transform({ schema, url, route: { config } }) {
      const { operationId, security = [bySession] } = schema ?? {};
      const takesSession = security.some((scheme) => "session" in scheme);
      if (operationId !== undefined && takesSession && config?.prolongsSession !== false) {
        prolonging.add(operationId);
      }
      return { schema: documented(schema, refusedBeforeRouting), url };
    },
    transformObject(document) {
      invariant("openapiObject" in document, "the document is OpenAPI 3");
      // An operation without parameters keeps its empty list.
      for (const path of Object.values(document.openapiObject.paths ?? {})) {
        for (const operation of [path?.get, path?.post, path?.patch, path?.delete]) {
          if (operation === undefined) continue;
          operation.parameters ??= [];
          if (!prolonging.has(operation.operationId ?? "")) continue;
          operation.parameters.push({ $ref: "#/components/parameters/unattended" });
        }
      }
      keepUsed(document.openapiObject);
      return document.openapiObject;
    },
  });
  for (const [tag, routes] of Object.entries(groups)) {
    app.register(async (group) => {
      group.addHook("onRoute", ({ schema = {} }) => {
        schema.tags = [tag];
      });
      add(routes, group);
    });
  }
}

/** Removes the components of the other API. */
function keepUsed({ paths, components: parts }: { paths?: object; components?: { schemas?: object } }): void {
  if (parts?.schemas === undefined) return;
  const schemas = new Map(Object.entries(parts.schemas));
  const used = new Set<string>();
  const find = (part: unknown): void => {
    for (const [, name = ""] of JSON.stringify(part).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (used.has(name)) continue;
      used.add(name);
      find(schemas.get(name));
    }
  };
  find(paths ?? {});
  parts.schemas = Object.fromEntries([...schemas].filter(([name]) => used.has(name)));
}

/**
 * Returns the methods of a documented path, as the `allow` header lists them; none for an unknown
 * path.
 */
export function methodsOf(app: FastifyInstance, path: string): string[] {
  const found = Object.entries(app.swagger().paths ?? {}).find(([template]) =>
    new RegExp(`^${template.replaceAll(".", "\\.").replace(/\{\w+\}/g, "[^/]+")}$`).test(path),
  );
  if (found === undefined) return [];
  const [template, described] = found;
  const methods = Object.keys(described ?? {}).map((method) => method.toUpperCase());
  const url = template.replace(/\{(\w+)\}/g, ":$1");
  // A stream has no HEAD.
  if (methods.includes("GET") && app.hasRoute({ method: "HEAD", url })) {
    methods.splice(methods.indexOf("GET") + 1, 0, "HEAD");
  }
  return methods;
}

function documented(route: FastifySchema | undefined, before: readonly Code[]): FastifySchema {
  if (route?.operationId === undefined) return { hide: true };
  const { refusals, csv, events, response, role = "holder", ...described } = route;
  const needed = role === "holder" ? [] : [`Needs the role \`${role}\`.`];
  return {
    ...shownFields(described),
    description: [route.description ?? [], needed].flat().join(" "),
    response: { ...goodResponses(route), ...errorResponses(route, before) },
  };
}

function goodResponses({ response, ...route }: FastifySchema) {
  if (!isRecord(response)) return {};
  const responses = Object.entries(response).map(([status, body]) => [
    status,
    {
      description: status === "201" ? "Created" : "Done",
      ...(status === "204" ? {} : { content: contentOf(body, route) }),
    },
  ]);
  return Object.fromEntries(responses);
}

function contentOf(body: unknown, { csv, events }: FastifySchema) {
  if (events) return { "text/event-stream": { schema: shown(body) } };
  return { ...jsonOf(body), ...(csv ? { "text/csv": { schema: { type: "string" } } } : {}) };
}

/** One response for each status; its description lists the codes. */
function errorResponses({ refusals = [], body, role }: FastifySchema, before: readonly Code[]) {
  const codes: Code[] = [
    ...before,
    ...refusedEverywhere,
    ...(body === undefined ? [] : refusedWithBody),
    ...(role === undefined || role === "holder" || role === "viewer" ? [] : ["not_permitted" as const]),
    ...refusals,
  ];
  const byStatus = Map.groupBy(codes, (code) => catalogue[code].status);
  const responses = [...byStatus].map(([status, those]) => [
    status,
    { description: those.map((code) => `\`${code}\``).join(", "), content: jsonOf(error) },
  ]);
  return Object.fromEntries(responses);
}

function jsonOf(body: unknown) {
  return { "application/json": { schema: shown(body) } };
}

/** Returns a part of a schema with references to the components in it. */
function shown(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(shown);
  if (!isRecord(part)) return part;
  const name = components.get(part);
  return name === undefined ? shownFields(part) : { $ref: `#/components/schemas/${name}` };
}

function shownFields(part: object): object {
  // Other languages know no classes such as \p{Cc}, or no (?!…). The description has the rule.
  const isKnown = (name: string, value: unknown) => name !== "pattern" || !/\\p\{|\(\?[=!]/.test(`${value}`);
  const fields = Object.entries(part).filter(([name, value]) => isKnown(name, value));
  return Object.fromEntries(fields.map(([name, value]) => [name, shown(value)]));
}
