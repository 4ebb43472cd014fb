/** Which browsers' pages may call the service: none, unless the configuration lists their origins. */
import type { IncomingHttpHeaders } from "node:http";

const exposed = [
  "x-request-id",
  "retry-after",
  "x-should-retry",
  "openai-processing-ms",
  "x-ratelimit-limit-requests",
  "x-ratelimit-remaining-requests",
  "x-ratelimit-reset-requests",
  "x-ratelimit-limit-tokens",
  "x-ratelimit-remaining-tokens",
  "x-ratelimit-reset-tokens",
].join(", ");

/** How long a browser may remember a pre-flight answer; Chromium caps it at two hours anyway. */
const maxAgeSeconds = 7200;

export class Cors {
  readonly #origins: ReadonlySet<string>;

  /** Origins as browsers send them (`https://app.example`), or `*` for any. */
  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  get enabled(): boolean {
    return this.#origins.size > 0;
  }

  isPreflight(method: string, headers: IncomingHttpHeaders): boolean {
    return (
      this.enabled &&
      method === "OPTIONS" &&
      headers.origin !== undefined &&
      headers["access-control-request-method"] !== undefined
    );
  }

  /** For every answer; an origin that is not listed gets none, which makes its browser keep the answer to itself. */
  headers(request: IncomingHttpHeaders): Record<string, string> {
    if (!this.enabled) return {};
    const allowed = this.#allowed(request.origin);
    if (allowed === null) return { vary: "Origin" };
    return {
      vary: "Origin",
      "access-control-allow-origin": allowed,
      "access-control-expose-headers": exposed,
    };
  }

  preflightHeaders(request: IncomingHttpHeaders, methods: string): Record<string, string> {
    const headers = this.headers(request);
    if (headers["access-control-allow-origin"] === undefined) return headers;
    return {
      ...headers,
      "access-control-allow-methods": methods,
      // SDKs add headers of their own; none of them is trusted with anything.
      "access-control-allow-headers":
        request["access-control-request-headers"] ?? "authorization, content-type",
      "access-control-max-age": String(maxAgeSeconds),
    };
  }

  #allowed(origin: string | undefined): string | null {
    if (origin === undefined) return null;
    if (this.#origins.has("*")) return "*";
    return this.#origins.has(origin) ? origin : null;
  }
}
