/** `/api/keys`: the key of the session, or all keys of its account. */
import { closed } from "../../accounts/json-objects.ts";
import { keyObject, newKeyObject } from "../../accounts/operator-objects.ts";
import { accountKeysMax } from "../../accounts/portal-actions.ts";
import { type ApiApp, route } from "../api/app.ts";
import { changedSettings, newSettings, rotationBody } from "../api/key-settings.ts";
import { pageIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

/** The answer arrives even if the change ends the session: it has the only copy of a secret. */
const config = { outlivesSession: true };

export function keyRoutes(app: ApiApp, { actions, signIn, logger }: PortalDependencies): void {
  app.addHook("preHandler", (request) => signIn.authenticateAgain(request));

  app.get(
    "/api/keys",
    route("listKeys", {
      summary: "List the keys that the session may see, with ended ones, in the order of their creation",
      ...schema.listOf(keyObject.schema),
    }),
    async (request) => pageIn(await actions.keys(sessionOf(request)), request.query, keyObject.of),
  );

  app.post(
    "/api/keys",
    route("makeKey", {
      summary: "Create a key of the account",
      description: `For keys with the right \`account\` and without a budget. The new key has the right \`own\`. Settings that are missing are those of the session's key, and none may exceed them. An account has at most ${accountKeysMax} keys. Only the response that creates the key (201) contains it. A repetition with the same operation id returns 200 with \`key: null\`.`,
      body: closed(newSettings.fields),
      response: { 200: newKeyObject.schema, 201: newKeyObject.schema },
      refusals: ["not_permitted", "operation_differs", "key_changed", "too_many_keys", "too_many_changes"],
    }),
    async (request, reply) => {
      const { body } = request;
      const { key, row } = await actions.createKey(
        sessionOf(request),
        body.operation_id,
        newSettings.of(body),
      );
      return reply.code(key === null ? 200 : 201).send(newKeyObject.of({ key, ...row }));
    },
  );

  app.patch(
    "/api/keys/:key",
    route("changeKey", {
      summary: "Change settings of a key",
      description:
        "For keys with the right `account`. No setting may exceed those of the session's key. A change that gives the key more must leave a key that may do no more than the session's key. A session whose key has a budget changes names only. Absent fields stay, and null removes a setting. Each operation id takes effect once.",
      body: closed(changedSettings.fields),
      response: { 200: keyObject.schema },
      ...schema.ofKey("not_permitted", "key_revoked", "operation_differs", "key_changed", "too_many_changes"),
    }),
    async (request) => {
      const { params, body } = request;
      const change = changedSettings.of(body);
      return keyObject.of(await actions.changeKey(sessionOf(request), params.key, body.operation_id, change));
    },
  );

  app.post(
    "/api/keys/:key/rotate",
    route(
      "rotateKey",
      {
        summary: "Give a key a new secret",
        description:
          "The key of the session, or with the right `account` a key that may do no more. The present secret stays valid for requests for the period `overlap`, and never beyond the expiry of the key. If the session rotates its own key, the response has a cookie for a new session, and all other sessions of the key end. Each operation id takes effect once: a repetition returns the key with `key` null.",
        body: rotationBody,
        response: { 200: newKeyObject.schema },
        ...schema.ofKey(
          ...(["not_permitted", "key_revoked", "key_expired"] as const),
          ...(["operation_differs", "key_changed", "too_many_changes"] as const),
        ),
      },
      { config },
    ),
    async (request, reply) => {
      const session = sessionOf(request);
      const { operation_id, overlap } = request.body;
      const { key, row } = await actions.rotateKey(session, request.params.key, operation_id, overlap);
      if (row.id === session.key.id && key !== null) {
        try {
          reply.header("set-cookie", await signIn.renew(request, row));
        } catch (err) {
          // The secret must arrive all the same. Its holder can sign in with it.
          logger.warn({ requestId: request.id, err }, "a key was rotated, and its session was not renewed");
        }
      }
      return newKeyObject.of({ key, ...row });
    },
  );

  app.delete(
    "/api/keys/:key",
    route(
      "revokeKey",
      {
        summary: "Revoke a key of the account, at once and for good",
        description: "For keys with the right `account`. Running requests of the key may finish.",
        response: { 200: keyObject.schema },
        ...schema.ofKey("not_permitted", "too_many_changes"),
      },
      { config },
    ),
    async (request) => keyObject.of(await actions.revokeKey(sessionOf(request), request.params.key)),
  );
}
