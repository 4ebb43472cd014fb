/**
 * `/admin/chat`: one chat request with an API key that the sender has, for pages that cannot reach
 * the public listener. It takes the path of the public API, and the answer shows what it cost.
 */
import Type from "typebox";
import { findUsableKey, keyCallerOf } from "../../accounts/keys.ts";
import { invalidValue, requireRole } from "../../accounts/refusals.ts";
import { Refusal } from "../../errors.ts";
import { type ApiApp, route } from "../api/app.ts";
import { chatRefusals, lastChunk, requireOwnKey } from "../api/chat.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { senderOf } from "./operator-sign-in.ts";

const keyHeader = "x-inkwell-key";
const role = "operator";

export function chatRoutes(app: ApiApp, _actions: unknown, { chat, store, signIn }: AdminDependencies): void {
  chat.serve(app, {
    path: "/admin/chat",
    ...route("tryKey", {
      role,
      summary: "Send a chat request with an API key",
      description: `As \`POST /api/chat\` of the portal, with the API key in the header \`${keyHeader}\`: nobody sends a request with a key without its secret. Its account pays.`,
      headers: Type.Object({ [keyHeader]: Type.String({ description: "the secret of the key" }) }),
      response: { 200: lastChunk },
      events: true,
      refusals: chatRefusals,
    }),
    async authenticate(request, reply) {
      await signIn.authenticate(request, reply);
      requireRole(senderOf(request).role, role);
    },
    async findCaller({ headers }) {
      const { atMs } = store.times();
      const found = await findUsableKey(store, String(headers[keyHeader] ?? ""), atMs).catch(
        (error: unknown) => {
          // 401 would say that the sender must sign in again.
          const isUnknown = error instanceof Refusal && error.code === "invalid_api_key";
          throw isUnknown ? invalidValue(keyHeader, error.message) : error;
        },
      );
      requireOwnKey(found.key);
      return keyCallerOf(found);
    },
  });
}
