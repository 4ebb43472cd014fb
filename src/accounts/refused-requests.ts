/**
 * Requests that were refused, as the holder of a key sees them: who or what refused each one, and
 * what to do. The sentences follow from the codes alone, so they contain nothing of a request.
 */
import type { CallerCode } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { fieldsFor, isoTime, objectFor, orNull, text, time } from "./json-objects.ts";

export interface RefusedRequest {
  /** Id of the request. */
  id: string;
  atMs: EpochMs;
  code: CallerCode;
  /** Null if the request named no known model. */
  model: string | null;
  /** Id of the key. */
  key: string;
  /** It failed after the model had taken it, so it has a receipt. */
  isAccepted: boolean;
}

const fields = fieldsFor<RefusedRequest>()({
  request_id: [text, ({ id }) => id],
  at: [time, ({ atMs }) => isoTime(atMs)],
  code: [text, ({ code }) => code],
  model: [orNull(text), ({ model }) => model],
  key: [text, ({ key }) => key],
});

type Words = readonly [refusedBy: string, sentence: string];

const malformed: Words = ["request", "The request has a mistake, which its answer names. Correct it."];
const away: Words = ["service", "The service could not take the request. Send it again in a moment."];

export const refusalWords: Readonly<Record<CallerCode, Words>> = {
  invalid_json: malformed,
  missing_required_parameter: malformed,
  invalid_type: malformed,
  invalid_value: malformed,
  unknown_parameter: malformed,
  unknown_path: malformed,
  method_not_allowed: malformed,
  unsupported_media_type: malformed,
  request_timeout: ["request", "The request arrived too slowly. Send it over a faster connection."],
  request_too_large: ["request", "The request is too large. Send a shorter conversation."],
  context_length_exceeded: [
    "request",
    "The messages are longer than the model can read. Send fewer or shorter ones.",
  ],
  model_not_found: ["request", "There is no such model. Use one that the page Models lists."],
  content_filter: ["model", "The moderation of the model refused the messages. Change them."],
  missing_person: ["front end", "The program did not name the person who uses it. Tell its operator."],
  unknown_person: ["front end", "The person who uses the program has no account here. Ask the operator."],
  missing_api_key: ["key", "The request had no key. Send one."],
  invalid_api_key: ["key", "The key was revoked, replaced or had expired. Use another one."],
  insufficient_credits: [
    "credits",
    "The credits could not pay for the prompt and one token. Wait for the next refill, or ask the operator for more.",
  ],
  credits_reserved: [
    "credits",
    "Running requests held the credits. Wait until one has ended, or ask for a shorter answer.",
  ],
  cap_reached: [
    "cap",
    "A spending cap could not pay for the prompt and one token. Wait until it refills, or use another key. More credits do not help.",
  ],
  rate_limit_exceeded: [
    "limit",
    "More requests or tokens came in a minute than the plan or the key allows. Send fewer, or wait as long as the answer says.",
  ],
  concurrency_limit_exceeded: [
    "limit",
    "As many requests ran as the plan or the key allows at once. Wait until one has ended.",
  ],
  too_many_refusals: [
    "limit",
    "Too many requests before this one were refused. Correct them, then wait a minute.",
  ],
  model_not_allowed: ["plan or key", "The plan or the key excludes this model. Use one of the page Models."],
  account_suspended: ["operator", "The account was suspended or closed. Ask the operator."],
  request_stopped: ["person", "The operator or somebody of the account stopped the request while it waited."],
  balance_unavailable: ["service", "The balance could not be read. Tell the operator."],
  internal_error: ["service", "The service has a defect. Tell the operator the id of the request."],
  upstream_error: away,
  upstream_timeout: away,
  overloaded: away,
  model_unavailable: away,
  shutting_down: away,
  store_unavailable: away,
};

/** As operators see it. */
export const refusalObject = objectFor<RefusedRequest>("RecentRefusal")(fields);

export const refusedRequestObject = objectFor<RefusedRequest>("RefusedRequest")({
  ...fields,
  refused_by: [text, ({ code }) => refusalWords[code][0]],
  message: [text, ({ code }) => refusalWords[code][1]],
});
