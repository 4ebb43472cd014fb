/** Error codes and responses of the portal's API. No response has details for operators. */
import { Refusal } from "../../errors.ts";

/** Operator codes of requests that are refused before their route is called. */
export const refusedBeforeRouting = [
  "invalid_session",
  "missing_request_header",
  "host_not_allowed",
  "origin_not_allowed",
] as const;

export function unknownPath(): Refusal {
  return new Refusal(
    "unknown_path",
    "This path does not exist. Available are the pages of the portal and the paths in GET /api/openapi.json. The public API has its own port.",
  );
}
