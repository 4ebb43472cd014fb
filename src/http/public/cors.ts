/**
 * CORS: the browser pages that may call the service. None may, unless the configuration lists
 * their origins.
 */
import type { IncomingHttpHeaders } from "node:http";
import { rateNames } from "../../ledger/rate-limits.ts";
import { rateHeaderNames } from "../openai-format/response.ts";

const exposed = [
  "x-request-id",
  "retry-after",
  "x-should-retry",
  "openai-processing-ms",
  "x-inkwell-cost",
  "x-inkwell-balance",
  ...rateNames.flatMap(rateHeaderNames),
].join(", ");

/** Time that a browser may cache a preflight answer. Chromium caps it at two hours. */
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
    const isComplete = headers.origin !== undefined && headers["access-control-request-method"] !== undefined;
    return this.enabled && method === "OPTIONS" && isComplete;
  }

  /**
   * Returns the headers of every answer. Without them, a browser hides the answer from the page.
   */
  headers({ origin }: IncomingHttpHeaders): Record<string, string> {
    if (!this.enabled) return {};
    const isAny = this.#origins.has("*");
    if (origin === undefined || !(isAny || this.#origins.has(origin))) return { vary: "Origin" };
    return {
      vary: "Origin",
      "access-control-allow-origin": isAny ? "*" : origin,
      "access-control-expose-headers": exposed,
    };
  }

  preflightHeaders(request: IncomingHttpHeaders, methods: string): Record<string, string> {
    const headers = this.headers(request);
    if (headers["access-control-allow-origin"] === undefined) return headers;
    return {
      ...headers,
      "access-control-allow-methods": methods,
      // SDKs add headers of their own, and the service trusts none of them.
      "access-control-allow-headers":
        request["access-control-request-headers"] ?? "authorization, content-type",
      "access-control-max-age": String(maxAgeSeconds),
    };
  }
}
