/**
 * `/api/chat`: a chat request with the key of the session, or with the newest key of a person that
 * works. It takes the path of the public API
 * (public/chat-service.ts), and the answer shows what it cost.
 */
import { keyCallerOf } from "../../accounts/keys.ts";
import { isPerson } from "../../accounts/portal-viewer.ts";
import { type ApiApp, route } from "../api/app.ts";
import { chatRefusals, lastChunk, requireOwnKey } from "../api/chat.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

export function chatRoutes(app: ApiApp, { actions, chat, signIn }: PortalDependencies): void {
  chat.serve(app, {
    path: "/api/chat",
    ...route("chat", {
      summary:
        "Send a chat request with the key of the session, or with the newest key of a person that works",
      description:
        "The body is that of `POST /v1/chat/completions`, with `stream: true`. Limits, credits and refusals are those of the public API, and so are the server-sent events of the answer. The last event before `[DONE]` is this object: `cost_micro` is what the ledger charged, with the part `shortfall_micro` that the account could not pay. Both are null if the charge is not recorded yet. A late error has both fields beside `error`. To abort, close the connection: the tokens so far are charged.",
      response: { 200: lastChunk },
      events: true,
      refusals: chatRefusals,
    }),
    authenticate: (request, reply) => signIn.authenticate(request, reply),
    async findCaller(request) {
      const session = sessionOf(request);
      const key = isPerson(session) ? await actions.keyForChat(session) : session.key;
      requireOwnKey(key);
      return keyCallerOf({ ...session, key });
    },
  });
}
