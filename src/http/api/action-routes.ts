/** Routes made from actions: method, path, schemas, refusals and texts are those of the action. */
import { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest } from "fastify";
import { closed } from "../../accounts/json-objects.ts";
import { type ActionTexts, routeOf } from "../../actions/action.ts";
import type { BoundAction } from "../../actions/bind.ts";
import { propertiesOf } from "../../actions/input.ts";
import { isRecord } from "../../objects.ts";
import { type ApiApp, type RouteSettings, route } from "./app.ts";

/** Adds the routes of actions, in their order. */
export function actionRoutes<Context>(
  app: ApiApp,
  bound: Readonly<Record<string, BoundAction<Context>>>,
  contextOf: (request: FastifyRequest) => Context,
): void {
  for (const each of Object.values(bound)) actionRoute(app, each, contextOf);
}

/**
 * Adds the route of an action. `respond` completes the response, and returns its body; default:
 * the result.
 */
export function actionRoute<Context, Result>(
  app: ApiApp,
  bound: BoundAction<Context, Result>,
  contextOf: (request: FastifyRequest) => Context,
  settings: RouteSettings = {},
  respond: (request: FastifyRequest, reply: FastifyReply, result: Result) => unknown = (_, __, result) =>
    result,
): void {
  const { action, result } = bound;
  const { method, path } = routeOf(action);
  app.route({
    method,
    url: path.replace(/\{(\w+)\}/g, ":$1"),
    ...route(action.id, schemaOf(action, result), settings),
    handler: async (request, reply) => {
      // The API has checked the parts, and no two of them have a field of the same name.
      const parts = [request.params, request.query, request.body].filter(isRecord);
      const format = action.csv === true && acceptsCsv(request.headers.accept) ? { format: "csv" } : {};
      const input: object = Object.assign({}, format, ...parts);
      const outcome = await bound.run(contextOf(request), input);
      reply.code(action.status === 201 && !outcome.isNew ? 200 : (action.status ?? 200));
      const type = typeOf(action, outcome.result);
      if (type !== null) reply.header("content-type", type);
      return respond(request, reply, outcome.result);
    },
  });
}

const csvType = "text/csv; charset=utf-8; header=present";

/** Returns whether a request's header `accept` names CSV. */
function acceptsCsv(accept = ""): boolean {
  return accept.split(",").some((range) => range.split(";", 1)[0]?.trim().toLowerCase() === "text/csv");
}

/** Returns the type of a text, or of a stream of it. Null: an object, which becomes JSON. */
function typeOf({ csv }: ActionTexts, result: unknown): string | null {
  if (typeof result !== "string" && !(result instanceof Readable)) return null;
  return csv === true ? csvType : "application/json; charset=utf-8";
}

function schemaOf(action: ActionTexts, result: unknown) {
  const { title, help, role, input, refuses, status, csv } = action;
  const { method, names } = routeOf(action);
  const others = Object.keys(input).filter((name) => !names.includes(name));
  const params = closed(propertiesOf(input, names));
  const rest = closed(propertiesOf(input, others));
  const unknown = (["account", "key"] as const).filter((name) => names.includes(name));
  return {
    summary: title,
    role,
    ...(help === undefined ? {} : { description: help }),
    ...(names.length === 0 ? {} : { params }),
    ...(method === "GET" || others.length === 0 ? { querystring: rest } : { body: rest }),
    response: {
      ...(status === 202 ? {} : { 200: result }),
      ...(status === undefined ? {} : { [status]: result }),
    },
    ...(csv === undefined ? {} : { csv }),
    refusals: [...unknown.map((name) => `${name}_not_found` as const), ...refuses],
  };
}
