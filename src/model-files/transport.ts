/**
 * HTTP client for large downloads. A credential is sent only to its own origin, even after
 * redirects. Every wait has a timeout. Every failure is one sentence, with a flag that tells
 * whether a retry may succeed.
 *
 * It uses undici instead of the global fetch, for its timeout between pieces of a body and for
 * its proxy agent. The certificates of the system are trusted as well as Node's own, because a
 * network that inspects TLS installs its authority there.
 */
import { getCACertificates } from "node:tls";
import { type Dispatcher, EnvHttpProxyAgent, errors, Pool, request } from "undici";
import { codeOf, messageOf } from "../errors.ts";
import { given } from "../objects.ts";
import { outgoing } from "../outgoing.ts";
import type { Proxies } from "./proxies.ts";
import type { Credential } from "./url-credentials.ts";

/** Longest waits: for a connection, for the headers, and between pieces of the body. */
export interface Timeouts {
  connectMs: number;
  headersMs: number;
  bodyIdleMs: number;
}

const defaultTimeouts: Timeouts = { connectMs: 10_000, headersMs: 30_000, bodyIdleMs: 30_000 };

const redirectsMax = 8;
/** A longer `retry-after` is reported instead of followed. */
const retryAfterMsMax = 60_000;

export interface HttpResponse {
  status: number;
  /** Headers of the last host, with names in lower case. */
  headers: ReadonlyMap<string, string>;
  /** Headers of the first response: a hub describes the file before it redirects to it. */
  firstHeaders: ReadonlyMap<string, string>;
  url: URL;
  body: Dispatcher.ResponseData["body"];
}

/** A download that failed for a reason outside this machine. `message` is for the operator. */
export class TransportFailure extends Error {
  override readonly name = "TransportFailure";
  /** Whether a retry may succeed. */
  readonly transient: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(message: string, transient: boolean, options: { retryAfterMs?: number; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.transient = transient;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export class Transport {
  /**
   * One agent for each URL scheme: a single agent would use the HTTP proxy for HTTPS if HTTPS has
   * none.
   */
  readonly #agents: { http: Dispatcher; https: Dispatcher };
  readonly #headersMs: number;

  constructor(proxies: Proxies, timeouts: Timeouts = defaultTimeouts) {
    this.#headersMs = timeouts.headersMs;
    const connect = {
      timeout: timeouts.connectMs,
      ca: [...new Set([...getCACertificates("default"), ...getCACertificates("system")])],
    };
    const limits = { ...outgoing, headersTimeout: 0, bodyTimeout: timeouts.bodyIdleMs };
    const agentBy = (proxy: string): Dispatcher =>
      new EnvHttpProxyAgent({
        httpProxy: proxy,
        httpsProxy: proxy,
        noProxy: proxies.none,
        // Without a proxy, to the host behind a proxy, and to the proxy.
        connect,
        requestTls: connect,
        proxyTls: connect,
        // Otherwise connections to a proxy have timeouts of five minutes.
        factory: (origin, options) => new Pool(origin, { ...options, ...limits }),
        clientFactory: (origin, options) => new Pool(origin, { ...options, ...limits }),
        ...limits,
      });
    this.#agents = { http: agentBy(proxies.http), https: agentBy(proxies.https) };
  }

  /**
   * Sends a GET and follows redirects. Throws a `TransportFailure` for any status other than 200,
   * 206 and 416.
   */
  async get(
    start: URL,
    headers: Record<string, string>,
    credentials: readonly Credential[],
    signal: AbortSignal,
  ): Promise<HttpResponse> {
    let url = start;
    let firstHeaders: ReadonlyMap<string, string> | undefined;
    for (let hop = 0; hop <= redirectsMax; hop++) {
      const authorization = credentials.find(({ origin }) => origin === url.origin)?.authorization;
      const response = await this.#request(url, { ...headers, ...given({ authorization }) }, signal);
      const { statusCode: status, body } = response;
      const answer = flat(response.headers);
      firstHeaders ??= answer;
      if (status === 200 || status === 206 || status === 416) {
        return { status, headers: answer, firstHeaders, url, body };
      }
      discard(body);
      const location = status >= 300 && status < 400 ? answer.get("location") : undefined;
      const target = location === undefined ? null : URL.parse(location, url.href);
      if (target === null) throw refusal(url, status, answer);
      if (target.protocol !== "https:" && target.protocol !== url.protocol) {
        throw new TransportFailure(
          `${url.host} redirects from ${url.protocol}// to ${target.protocol}//, which is not followed`,
          false,
        );
      }
      url = target;
    }
    throw new TransportFailure(`${start.host} redirects too often`, false);
  }

  async #request(
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    // The timeout of undici starts again with each informational response (1xx).
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(new errors.HeadersTimeoutError()), this.#headersMs);
    const either = AbortSignal.any([signal, late.signal]);
    const aborted = Promise.withResolvers<never>();
    either.addEventListener("abort", () => aborted.reject(either.reason), { once: true });
    try {
      either.throwIfAborted();
      const asked = request(url, {
        dispatcher: url.protocol === "https:" ? this.#agents.https : this.#agents.http,
        // Otherwise a proxy may compress the body, and sizes and ranges would not fit.
        headers: { "accept-encoding": "identity", "user-agent": "inkwell", ...headers },
        signal: either,
      });
      // The signal does not reach a connection that a proxy has not opened yet.
      return await Promise.race([asked, aborted.promise]);
    } catch (error) {
      signal.throwIfAborted();
      throw transportFailureOf(url, error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Reads a page of limited size. */
  async bytes(answer: HttpResponse, bytesMax: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const piece of answer.body) {
        bytes += piece.length;
        if (bytes > bytesMax)
          throw new TransportFailure(`${answer.url.host} sends a page of more than ${bytesMax} bytes`, false);
        pieces.push(piece);
      }
    } catch (error) {
      throw transportFailureOf(answer.url, error);
    }
    return Buffer.concat(pieces);
  }

  async close(): Promise<void> {
    await Promise.all([this.#agents.http.destroy(), this.#agents.https.destroy()]);
  }
}

/** Closes the connection of a body that is not needed, which the body reports as an error. */
export function discard(body: HttpResponse["body"]): void {
  body.on("error", () => {}).destroy();
}

function flat(headers: Dispatcher.ResponseData["headers"]): Map<string, string> {
  return new Map(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name.toLowerCase(), Array.isArray(value) ? value.join(", ") : value]],
    ),
  );
}

function refusal(url: URL, status: number, headers: ReadonlyMap<string, string>): TransportFailure {
  const fail = (reason: string) => new TransportFailure(`${url.host} answers ${status}: ${reason}`, false);
  // The hub distinguishes its refusals in this header: https://huggingface.co/docs/hub
  const code = headers.get("x-error-code");
  if (code === "GatedRepo") return fail("accept the model's terms on its page, and set HF_TOKEN to a token");
  if (code === "RevisionNotFound") return fail("it has no such revision");
  if (code === "EntryNotFound") return fail("the repository has no such file");
  if (code === "RepoNotFound" || status === 401) {
    const needs = code === "RepoNotFound" ? "there is no such repository, or it is private and" : "it";
    return fail(`${needs} needs a valid token (HF_TOKEN, or the user in the URL)`);
  }
  if (status === 403) return fail("this user may not have the file");
  if (status === 404 || status === 410) return fail(`it has no ${url.pathname}`);
  const place = `${url.host} answers ${status}`;
  if (status === 429 || status === 503) {
    const waitMs = retryAfterMs(headers.get("retry-after"));
    if (waitMs !== undefined && waitMs > retryAfterMsMax) {
      return fail(`it asks to wait for ${Math.round(waitMs / 1000)} s`);
    }
    const reason = status === 429 ? "too many requests" : "it is overloaded";
    return new TransportFailure(`${place}: ${reason}`, true, given({ retryAfterMs: waitMs }));
  }
  return new TransportFailure(place, status >= 500 || status === 408);
}

function retryAfterMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}

/** Codes of connections that could not be made, in words. */
const unreachable: Record<string, string> = {
  ENOTFOUND: ": its name is not known here",
  EAI_AGAIN: ": names cannot be looked up now",
  ECONNREFUSED: ": connection refused",
  ENETUNREACH: " (ENETUNREACH)",
  EHOSTUNREACH: " (EHOSTUNREACH)",
  ETIMEDOUT: " (ETIMEDOUT)",
  ENETDOWN: " (ENETDOWN)",
};

/** Returns the failure for an error below HTTP, while connecting or in the middle of a body. */
export function transportFailureOf(url: URL, error: unknown): TransportFailure {
  if (error instanceof TransportFailure) return error;
  const place = url.host;
  const fail = (message: string, transient: boolean): TransportFailure =>
    new TransportFailure(message, transient, { cause: error });
  if (error instanceof errors.ConnectTimeoutError)
    return fail(`${place} cannot be reached: no answer`, false);
  if (error instanceof errors.HeadersTimeoutError) return fail(`${place} does not answer`, true);
  if (error instanceof errors.BodyTimeoutError) return fail(`${place} stopped sending`, true);
  // If several addresses were tried, the first one's error counts.
  const code = codeOf(error instanceof AggregateError ? (error.errors[0] ?? error) : error);
  const reason = unreachable[code ?? ""];
  if (reason !== undefined) return fail(`${place} cannot be reached${reason}`, false);
  if (code !== undefined && /CERT|SELF_SIGNED|ISSUER/.test(code)) {
    return fail(
      `${place} has a certificate that is not trusted (${code}); name your network's authority in NODE_EXTRA_CA_CERTS`,
      false,
    );
  }
  return fail(`the connection to ${place} broke (${code ?? messageOf(error)})`, true);
}
