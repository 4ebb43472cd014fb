/**
 * HTTP as fetching large files needs it: redirects followed by hand, so that a credential goes to the host it was
 * given for and to no other; every silence bounded; every failure one plain sentence that says whether trying again
 * can help. Knows nothing of files.
 *
 * On undici rather than the global fetch, for its time limits between pieces of a body and its proxy agent.
 * Certificates: those of the system count as well as Node's own, behind a proxy as without one, since a network that
 * inspects TLS installs its authority there.
 */
import { getCACertificates } from "node:tls";
import { type Dispatcher, EnvHttpProxyAgent, errors, Pool, request } from "undici";
import { codeOf, messageOf } from "../errors.ts";
import { noProxies, type Proxies } from "./proxies.ts";

/** How long each part of a conversation may stay silent. */
export interface Timeouts {
  connectMs: number;
  headersMs: number;
  bodyIdleMs: number;
}

export const defaultTimeouts: Timeouts = { connectMs: 10_000, headersMs: 30_000, bodyIdleMs: 30_000 };

const redirectsMax = 8;
/** The longest that a server's wish to be left alone is followed instead of reported. */
const retryAfterMsMax = 60_000;

/** An `authorization` header and the one origin that may see it. */
export interface Credential {
  origin: string;
  authorization: string;
}

export interface Answer {
  status: number;
  /** Lower-case names, as the last host sent them. */
  headers: ReadonlyMap<string, string>;
  /** Of the first answer that carried any: hubs describe a file before they send one away to fetch it. */
  firstHeaders: ReadonlyMap<string, string>;
  url: URL;
  body: Dispatcher.ResponseData["body"];
}

/** A fetch that failed for a reason outside this machine. `message` is for the operator. */
export class TransportFailure extends Error {
  override readonly name = "TransportFailure";
  /** Whether the same request may succeed in a moment. */
  readonly transient: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(message: string, transient: boolean, options: { retryAfterMs?: number; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.transient = transient;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export class Transport {
  /** By the scheme of an address. One agent for both would take "no proxy for HTTPS" as "the one for HTTP". */
  readonly #agents: { http: Dispatcher; https: Dispatcher };

  constructor(timeouts: Timeouts = defaultTimeouts, proxies: Proxies = noProxies) {
    const connect = {
      timeout: timeouts.connectMs,
      ca: [...new Set([...getCACertificates("default"), ...getCACertificates("system")])],
    };
    const limits = { headersTimeout: timeouts.headersMs, bodyTimeout: timeouts.bodyIdleMs };
    const agentBy = (proxy: string): Dispatcher =>
      new EnvHttpProxyAgent({
        httpProxy: proxy,
        httpsProxy: proxy,
        noProxy: proxies.none,
        // Without a proxy; through one to the host behind it; to the proxy itself.
        connect,
        requestTls: connect,
        proxyTls: connect,
        // What is said to a proxy itself would have limits of its own otherwise, of five minutes.
        factory: (origin, options) => new Pool(origin, { ...options, ...limits }),
        clientFactory: (origin, options) => new Pool(origin, { ...options, ...limits }),
        ...limits,
      });
    this.#agents = { http: agentBy(proxies.http), https: agentBy(proxies.https) };
  }

  /** One GET, redirects followed. Throws a `TransportFailure`, also for answers other than 200, 206 and 416. */
  async get(
    start: URL,
    headers: Record<string, string>,
    credentials: readonly Credential[],
    signal: AbortSignal,
  ): Promise<Answer> {
    let url = start;
    let firstHeaders: ReadonlyMap<string, string> | undefined;
    for (let hop = 0; hop <= redirectsMax; hop++) {
      const authorization = credentials.find(({ origin }) => origin === url.origin)?.authorization;
      const {
        statusCode,
        headers: raw,
        body,
      } = await this.#request(
        url,
        authorization === undefined ? headers : { ...headers, authorization },
        signal,
      );
      const answer = flat(raw);
      firstHeaders ??= answer;
      const location = answer.get("location");
      if (
        statusCode >= 300 &&
        statusCode < 400 &&
        location !== undefined &&
        URL.canParse(location, url.href)
      ) {
        await body.dump();
        url = redirected(url, new URL(location, url));
        continue;
      }
      if (statusCode === 200 || statusCode === 206 || statusCode === 416) {
        return { status: statusCode, headers: answer, firstHeaders, url, body };
      }
      await body.dump();
      throw refusal(url, statusCode, answer);
    }
    throw new TransportFailure(`${start.host} redirects in circles`, false);
  }

  async #request(
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    try {
      // Without `identity` a proxy may compress, and sizes and ranges would mean something else.
      return await request(url, {
        dispatcher: url.protocol === "https:" ? this.#agents.https : this.#agents.http,
        headers: { "accept-encoding": "identity", "user-agent": "inkwell", ...headers },
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      throw failureOf(url, error);
    }
  }

  /** A page, read whole. */
  async text(answer: Answer, bytesMax: number): Promise<string> {
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
      throw failureOf(answer.url, error);
    }
    return Buffer.concat(pieces).toString("utf8");
  }

  async close(): Promise<void> {
    await Promise.all([this.#agents.http.destroy(), this.#agents.https.destroy()]);
  }
}

function redirected(from: URL, to: URL): URL {
  if (to.protocol !== "https:" && to.protocol !== from.protocol) {
    throw new TransportFailure(
      `${from.host} redirects from ${from.protocol}// to ${to.protocol}//, which is not followed`,
      false,
    );
  }
  return to;
}

function flat(headers: Dispatcher.ResponseData["headers"]): Map<string, string> {
  return new Map(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name.toLowerCase(), Array.isArray(value) ? value.join(", ") : value]],
    ),
  );
}

function refusal(url: URL, status: number, headers: ReadonlyMap<string, string>): TransportFailure {
  const place = `${url.host} answers ${status}`;
  // https://huggingface.co/docs/hub: the hub tells its refusals apart in this header.
  const code = headers.get("x-error-code");
  if (code === "GatedRepo") {
    return new TransportFailure(
      `${place}: accept the model's terms on its page, and give a token in HF_TOKEN`,
      false,
    );
  }
  if (code === "RevisionNotFound") return new TransportFailure(`${place}: it has no such revision`, false);
  if (code === "EntryNotFound")
    return new TransportFailure(`${place}: the repository has no such file`, false);
  if (code === "RepoNotFound" || status === 401) {
    const needs = code === "RepoNotFound" ? "there is no such repository, or it is private and" : "it";
    return new TransportFailure(
      `${place}: ${needs} needs a valid token (HF_TOKEN, or the user in the address)`,
      false,
    );
  }
  if (status === 403) return new TransportFailure(`${place}: this user may not have the file`, false);
  if (status === 404 || status === 410)
    return new TransportFailure(`${place}: it has no ${url.pathname}`, false);
  if (status === 429 || status === 503) {
    const wait = retryAfterMs(headers.get("retry-after"));
    if (wait !== undefined && wait > retryAfterMsMax) {
      return new TransportFailure(
        `${place}: it asks to be left alone for ${Math.round(wait / 1000)} s`,
        false,
      );
    }
    const message = status === 429 ? "too many requests" : "it is overloaded";
    return new TransportFailure(
      `${place}: ${message}`,
      true,
      wait === undefined ? {} : { retryAfterMs: wait },
    );
  }
  return new TransportFailure(place, status >= 500 || status === 408);
}

function retryAfterMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}

/** The sentence for what happened below HTTP, while connecting or in the middle of a body. */
export function failureOf(url: URL, error: unknown): TransportFailure {
  // If several addresses were tried, the first one's error counts.
  const code = codeOf(error instanceof AggregateError ? (error.errors[0] ?? error) : error);
  const place = url.host;
  const fail = (message: string, transient: boolean): TransportFailure =>
    new TransportFailure(message, transient, { cause: error });
  if (error instanceof TransportFailure) return error;
  if (error instanceof errors.ConnectTimeoutError)
    return fail(`${place} cannot be reached: no answer`, false);
  if (error instanceof errors.HeadersTimeoutError) return fail(`${place} does not answer`, true);
  if (error instanceof errors.BodyTimeoutError) return fail(`${place} stopped sending`, true);
  if (code === "ENOTFOUND") return fail(`${place} cannot be reached: its name is not known here`, false);
  if (code === "EAI_AGAIN") return fail(`${place} cannot be reached: names cannot be looked up now`, false);
  if (code === "ECONNREFUSED") return fail(`${place} cannot be reached: connection refused`, false);
  if (code !== undefined && /^(ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|ENETDOWN)$/.test(code)) {
    return fail(`${place} cannot be reached (${code})`, false);
  }
  if (code !== undefined && /CERT|SELF_SIGNED|ISSUER/.test(code)) {
    return fail(
      `${place} shows a certificate that is not trusted (${code}); name your network's authority in NODE_EXTRA_CA_CERTS`,
      false,
    );
  }
  return fail(`the connection to ${place} broke (${code ?? messageOf(error)})`, true);
}
