/**
 * `/api/chat`: a chat request with the key of the session, or with the newest key of a person that
 * works. It takes the path of the public API
 * (public/chat-service.ts), and the answer shows what it cost.
 */
import Type from "typebox";
import { closed, count, micro, orNull, text } from "../../accounts/json-objects.ts";
import { keyCallerOf } from "../../accounts/keys.ts";
import { isPerson } from "../../accounts/portal-viewer.ts";
import { Refusal } from "../../errors.ts";
import { type ApiApp, route } from "../api/app.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

/** The last chunk of an answer. Those before it are as in the public API. */
export const lastChunk = closed({
  id: Type.String({ description: "`chatcmpl-` and the request id" }),
  object: Type.Literal("chat.completion.chunk"),
  created: count,
  model: text,
  choices: Type.Array(Type.Never()),
  usage: Type.Object({ prompt_tokens: count, completion_tokens: count, total_tokens: count }),
  cost_micro: orNull(micro),
  shortfall_micro: orNull(micro),
});

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
      refusals: [
        "invalid_json",
        "missing_required_parameter",
        "context_length_exceeded",
        "request_too_large",
        "request_timeout",
        "unsupported_media_type",
        "model_not_found",
        "model_not_allowed",
        "account_suspended",
        "request_stopped",
        "insufficient_credits",
        "credits_reserved",
        "cap_reached",
        "not_permitted",
        "rate_limit_exceeded",
        "concurrency_limit_exceeded",
        "too_many_refusals",
        "upstream_error",
        "upstream_timeout",
        "model_unavailable",
        "shutting_down",
      ],
    }),
    authenticate: (request, reply) => signIn.authenticate(request, reply),
    async findCaller(request) {
      const session = sessionOf(request);
      const key = isPerson(session) ? await actions.keyForChat(session) : session.key;
      if (key.actsFor !== null) {
        throw new Refusal("not_permitted", "This key is that of a front end, which must name a person.");
      }
      return keyCallerOf({ ...session, key });
    },
  });
}
