/** What the chats of the portal and of operators share: their documents, and a rule of keys. */
import Type from "typebox";
import { closed, count, micro, orNull, text } from "../../accounts/json-objects.ts";
import { Refusal } from "../../errors.ts";
import type { KeyRow } from "../../ledger/rows.ts";

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

export const chatRefusals = [
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
] as const;

/** Refuses the key of a front end. */
export function requireOwnKey({ actsFor }: Pick<KeyRow, "actsFor">): void {
  if (actsFor === null) return;
  throw new Refusal("not_permitted", "This key is that of a front end, which must name a person.");
}
