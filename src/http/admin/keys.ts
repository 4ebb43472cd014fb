/**
 * `/admin/accounts/{account}/keys` and `/admin/keys/{key}`: issuing, listing, showing and revoking
 * keys.
 */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { keyObject, newKeyObject } from "../../accounts/operator-objects.ts";
import { type AdminApp, operation } from "./app.ts";
import { momentNamed, pageIn } from "./paging.ts";
import * as schema from "./schemas.ts";

const accountParams = closed({ account: schema.accountName });
const keyParams = closed({ key: schema.note });

const makeKey = operation("makeKey", {
  summary: "Issue a key",
  description:
    "Only the response that creates the key (201) contains it. A repetition with the same operation id returns 200 with `key: null`. If you lost the first response, revoke the key and issue another.",
  params: accountParams,
  body: closed({
    operation_id: schema.operationId,
    name: Type.Optional(schema.label),
    models: Type.Optional(schema.modelIds),
    expires_at: Type.Optional(schema.moment),
    requests_per_minute: Type.Optional(schema.limit),
    tokens_per_minute: Type.Optional(schema.limit),
    concurrent: Type.Optional(schema.limit),
  }),
  response: { 200: newKeyObject.schema, 201: newKeyObject.schema },
  refusals: ["account_not_found", "operation_differs"],
});

const listKeys = operation("listKeys", {
  summary: "List the keys of an account, with revoked and expired ones, in the order of their creation",
  params: accountParams,
  ...schema.listOf(keyObject.schema),
  refusals: ["account_not_found"],
});

const showKey = operation("showKey", {
  summary: "Show one key, without its secret",
  params: keyParams,
  response: { 200: keyObject.schema },
  refusals: ["key_not_found"],
});

const revokeKey = operation("revokeKey", {
  summary: "Revoke a key, at once and for good",
  description: "Running requests may finish. A repetition changes nothing: `revoked_at` stays.",
  params: keyParams,
  response: { 200: keyObject.schema },
  refusals: ["key_not_found"],
});

export function keyRoutes(app: AdminApp, actions: OperatorActions): void {
  app.post(
    "/admin/accounts/:account/keys",
    { schema: makeKey },
    async ({ params: { account }, body }, reply) => {
      const { operation_id, name, models, concurrent } = body;
      const options = {
        name,
        models: models === undefined ? undefined : [...new Set(models)],
        expiresMs: momentNamed("expires_at", body.expires_at),
        requestsPerMinute: body.requests_per_minute,
        tokensPerMinute: body.tokens_per_minute,
        concurrent,
      };
      const { key, row } = await actions.issueKeyOnce(account, operation_id, options);
      return reply.code(key === null ? 200 : 201).send(newKeyObject.of({ key, ...row }));
    },
  );

  app.get("/admin/accounts/:account/keys", { schema: listKeys }, async ({ params: { account }, query }) =>
    pageIn(await actions.keys(account), query, keyObject.of),
  );

  app.get("/admin/keys/:key", { schema: showKey }, async ({ params: { key } }) =>
    keyObject.of(await actions.key(key)),
  );

  app.delete("/admin/keys/:key", { schema: revokeKey }, async ({ params: { key } }) =>
    keyObject.of((await actions.revokeKey(key)).row),
  );
}
