/** `/admin/accounts/{account}/keys` and `/admin/keys/{key}`: make keys, list them, show one, revoke one. */
import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import Type, { type Static } from "typebox";
import { issueKey, type KeyOptions } from "../../accounts/keys.ts";
import type { Catalog } from "../../chat/catalog.ts";
import type { KeyRow } from "../../ledger/rows.ts";
import type { Store } from "../../store/store.ts";
import { type EpochMs, momentOf, momentRule } from "../../units.ts";
import { accountOf } from "./accounts.ts";
import type { AdminApp, AdminDependencies } from "./app.ts";
import { keyObject } from "./objects.ts";
import { pageIn } from "./paging.ts";
import { accountNotFound, invalidValue, keyNotFound, OperatorRefusal } from "./refusals.ts";
import * as schema from "./schemas.ts";

const tags = ["keys"];
const accountParams = schema.closed({ account: schema.accountName });
const keyParams = schema.closed({ key: schema.note });

const keyBody = schema.closed({
  operation_id: schema.operationId,
  name: Type.Optional(schema.label),
  models: Type.Optional(schema.modelIds),
  expires_at: Type.Optional(schema.moment),
  requests_per_minute: Type.Optional(schema.limit),
  tokens_per_minute: Type.Optional(schema.limit),
  concurrent: Type.Optional(schema.limit),
});

export function keyRoutes(app: AdminApp, { store, catalog }: AdminDependencies): void {
  app.post(
    "/admin/accounts/:account/keys",
    {
      schema: {
        summary: "Make a key",
        description:
          "The key itself is in the answer that makes it (201) and nowhere else. Sent again with the same operation id the answer is 200, with everything about the key and null in its place: where the first answer was lost, revoke the key and make another.",
        operationId: "makeKey",
        tags,
        params: accountParams,
        body: keyBody,
        response: { 200: schema.newKey, 201: schema.newKey },
        refusals: ["account_not_found", "operation_differs"],
      },
    },
    async ({ params: { account }, body }, reply) => {
      const nowMs = Date.now();
      const options = optionsOf(body);
      const id = keyIdOf(account, body.operation_id);
      const before = await store.keyById(id);
      if (before === null) {
        requireUsable(options, catalog, nowMs);
        const issued = await issueOnce(store, account, { ...options, id }, nowMs);
        if (issued === null) throw accountNotFound(account);
        const { key, row } = issued;
        if (key !== null) return reply.code(201).send({ key, ...keyObject(row) });
      }
      const known = before ?? (await store.keyById(id));
      if (known === null) throw keyNotFound(id);
      requireSame(known, account, options, body.operation_id);
      return reply.code(200).send({ key: null, ...keyObject(known) });
    },
  );

  app.get(
    "/admin/accounts/:account/keys",
    {
      schema: {
        summary:
          "List the keys of an account, revoked and expired ones too, in the order in which they were made",
        operationId: "listKeys",
        tags,
        params: accountParams,
        querystring: schema.closed(schema.pageQuery),
        response: { 200: schema.pageOf(schema.key) },
        refusals: ["account_not_found"],
      },
    },
    async ({ params: { account }, query }) => {
      await accountOf(store, account);
      return pageIn(await store.keys(account), query, keyObject);
    },
  );

  app.get(
    "/admin/keys/:key",
    {
      schema: {
        summary: "Show one key: everything about it but the key",
        operationId: "showKey",
        tags,
        params: keyParams,
        response: { 200: schema.key },
        refusals: ["key_not_found"],
      },
    },
    async ({ params: { key } }) => {
      const row = await store.keyById(key);
      if (row === null) throw keyNotFound(key);
      return keyObject(row);
    },
  );

  app.delete(
    "/admin/keys/:key",
    {
      schema: {
        summary: "Revoke a key, at once and for good",
        description: "What runs on it may end. Sent again it changes nothing: `revoked_at` stays.",
        operationId: "revokeKey",
        tags,
        params: keyParams,
        response: { 200: schema.key },
        refusals: ["key_not_found"],
      },
    },
    async ({ params: { key } }) => {
      const row = await store.revokeKey(key, Date.now());
      if (row === null) throw keyNotFound(key);
      return keyObject(row);
    },
  );
}

/** The same id for the same operation: by it a request that is sent again finds the key that it has made. */
function keyIdOf(account: string, operation: string): string {
  return `key_${hash("sha256", `${account}\n${operation}`, "hex").slice(0, 16)}`;
}

/** Null where there is no such account; `key` is null where a request at the same time has made it. */
async function issueOnce(
  store: Store,
  account: string,
  options: KeyOptions & { id: string },
  nowMs: EpochMs,
): Promise<{ key: string | null; row: KeyRow } | null> {
  try {
    return await issueKey(store, account, options, nowMs);
  } catch (error) {
    const row = await store.keyById(options.id);
    if (row === null) throw error;
    return { key: null, row };
  }
}

function optionsOf(body: Static<typeof keyBody>): KeyOptions {
  const { name, models, concurrent } = body;
  return {
    ...(name === undefined ? {} : { name }),
    ...(models === undefined ? {} : { models: [...new Set(models)] }),
    ...(body.expires_at === undefined ? {} : { expiresMs: momentNamed("expires_at", body.expires_at) }),
    ...(body.requests_per_minute === undefined ? {} : { requestsPerMinute: body.requests_per_minute }),
    ...(body.tokens_per_minute === undefined ? {} : { tokensPerMinute: body.tokens_per_minute }),
    ...(concurrent === undefined ? {} : { concurrent }),
  };
}

export function momentNamed(param: string, text: string): EpochMs {
  const ms = momentOf(text);
  if (ms === null) throw invalidValue(param, `${param} must be ${momentRule}.`);
  return ms;
}

function requireUsable({ models = [], expiresMs }: KeyOptions, catalog: Catalog, nowMs: EpochMs): void {
  for (const [index, model] of models.entries()) {
    if (model === "*" || catalog.find(model) !== undefined) continue;
    const ids = catalog.all().map(({ id }) => id);
    throw invalidValue(
      `models[${index}]`,
      `There is no model "${model}" in the configuration; it has ${ids.join(", ")}.`,
    );
  }
  if (expiresMs !== undefined && expiresMs <= nowMs) {
    throw invalidValue("expires_at", "expires_at is in the past: the key would have expired already.");
  }
}

function requireSame(row: KeyRow, account: string, options: KeyOptions, operation: string): void {
  const asked = {
    account,
    name: options.name ?? null,
    models: options.models ?? ["*"],
    expiresMs: options.expiresMs ?? null,
    requestsPerMinute: options.requestsPerMinute ?? null,
    tokensPerMinute: options.tokensPerMinute ?? null,
    concurrent: options.concurrent ?? null,
  };
  const { name, models, expiresMs, requestsPerMinute, tokensPerMinute, concurrent } = row;
  const made = {
    account: row.account,
    name,
    models,
    expiresMs,
    requestsPerMinute,
    tokensPerMinute,
    concurrent,
  };
  if (isDeepStrictEqual(made, asked)) return;
  throw new OperatorRefusal(
    "operation_differs",
    `The operation "${operation}" made the key ${row.id} of ${row.account} before, with other properties. Nothing has changed; another key needs another id.`,
    "operation_id",
  );
}
