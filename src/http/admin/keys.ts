/**
 * `/admin/accounts/{account}/keys` and `/admin/keys/{key}`: issuing, listing, showing, changing,
 * rotating and revoking keys.
 */
import Type from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { keyObject, keyOfSecretObject, newKeyObject } from "../../accounts/operator-objects.ts";
import { type ApiApp, route } from "../api/app.ts";
import { changedSettings, newSettings, rotationBody } from "../api/key-settings.ts";
import { pageIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";

export function keyRoutes(app: ApiApp, actions: OperatorActions): void {
  app.post(
    "/admin/accounts/:account/keys",
    route("makeKey", {
      summary: "Issue a key",
      description:
        "Only the response that creates the key (201) contains it. A repetition with the same operation id returns 200 with `key: null`. If you lost the first response, revoke the key and issue another.",
      body: closed({ ...newSettings.fields, portal: Type.Optional(schema.portal) }),
      response: { 200: newKeyObject.schema, 201: newKeyObject.schema },
      ...schema.ofAccount("operation_differs"),
    }),
    async ({ params: { account }, body }, reply) => {
      const options = { ...newSettings.of(body), portal: body.portal };
      const { key, row } = await actions.keys.issueOnce(account, body.operation_id, options);
      return reply.code(key === null ? 200 : 201).send(newKeyObject.of({ key, ...row }));
    },
  );

  app.get(
    "/admin/accounts/:account/keys",
    route("listKeys", {
      summary: "List the keys of an account, with revoked and expired ones, in the order of their creation",
      ...schema.listOf(keyObject.schema),
      ...schema.ofAccount(),
    }),
    async ({ params: { account }, query }) => pageIn(await actions.keys.list(account), query, keyObject.of),
  );

  app.get(
    "/admin/keys/:key",
    route("showKey", {
      summary: "Show one key, without its secret",
      response: { 200: keyObject.schema },
      ...schema.ofKey(),
    }),
    async ({ params: { key } }) => keyObject.of(await actions.keys.find(key)),
  );

  app.post(
    "/admin/keys/lookup",
    route("lookUpKey", {
      summary: "Find the key and the account of a secret",
      description:
        "Finds revoked and expired keys too, and the secret before the last rotation. The secret is not logged, and no answer repeats it.",
      // The length is checked by the action: a message about this field must not quote it.
      body: closed({ key: Type.String({ description: "the whole secret of a key" }) }),
      response: { 200: keyOfSecretObject.schema },
      refusals: ["key_not_found"],
    }),
    async ({ body: { key } }) => keyOfSecretObject.of(await actions.keys.lookUp(key)),
  );

  app.patch(
    "/admin/keys/:key",
    route("changeKey", {
      summary: "Change settings of a key",
      description:
        "Takes effect with the next request of the key. Absent fields stay, and null removes a setting. Another amount of the budget keeps its window. Another period, alignment or time zone starts a window that keeps what was spent. Each operation id takes effect once.",
      body: closed({ ...changedSettings.fields, portal: Type.Optional(schema.portal) }),
      response: { 200: keyObject.schema },
      ...schema.ofKey("key_revoked", "operation_differs"),
    }),
    async ({ params: { key }, body }) => {
      const change = { ...changedSettings.of(body), portal: body.portal };
      return keyObject.of(await actions.keys.change(key, body.operation_id, change));
    },
  );

  app.post(
    "/admin/keys/:key/rotate",
    route("rotateKey", {
      summary: "Give a key a new secret",
      description:
        "The present secret stays valid for the period `overlap`, and an older one ends at once. Id, budget, limits and receipts of the key stay. Each operation id takes effect once: a repetition returns the key with `key` null.",
      body: rotationBody,
      response: { 200: newKeyObject.schema },
      ...schema.ofKey("key_revoked", "key_expired", "operation_differs"),
    }),
    async ({ params, body }) => {
      const { key, row } = await actions.keys.rotate(params.key, body.operation_id, body.overlap);
      return newKeyObject.of({ key, ...row });
    },
  );

  app.delete(
    "/admin/keys/:key",
    route("revokeKey", {
      summary: "Revoke a key, at once and for good",
      description:
        "Ends both secrets of a rotated key. Running requests may finish. A repetition changes nothing: `revoked_at` stays.",
      response: { 200: keyObject.schema },
      ...schema.ofKey(),
    }),
    async ({ params: { key } }) => keyObject.of((await actions.keys.revoke(key)).row),
  );
}
