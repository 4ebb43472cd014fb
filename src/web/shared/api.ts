/**
 * Requests to the API of the pages. They carry the session's cookie, and the secret of the page
 * without which it does not count. A refusal becomes an `ApiError`, whose message a person can act
 * on.
 *
 * The pages and the API are of one version, so responses are not checked again here.
 */

import { createParser } from "eventsource-parser";
import { type ActionTexts, requestOf } from "../../actions/action.ts";
import { ApiError } from "../../actions/api-error.ts";
import { forgetPageSecret, hasPageSecret, pageSecret } from "./page-secret.ts";
import { paths } from "./paths.ts";
import { setTimezone } from "./times.ts";
import type { Session, SignInChoices } from "./types.ts";

export { ApiError };

export type Query = Readonly<Record<string, string | number | null | undefined>>;

const sessionPath = apiPath("session");
const signInPath = apiPath("sign-in");
let onSignedOut = () => {};

/** Calls `listener` when a request finds that the session has ended, or is too old for it. */
export function whenSignedOut(listener: () => void): void {
  onSignedOut = listener;
}

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return send<T>("GET", withQuery(path, query), undefined, signal);
}

/** As `get`, for what a page reads without its user. It does not prolong the session. */
export function getUnattended<T>(path: string, query: Query, signal: AbortSignal): Promise<T> {
  markUnattended(signal);
  return get<T>(path, query, signal);
}

/** As `getUnattended`, for a state with an entity tag. Null: it is still the one of `tag`. */
export async function getState<T>(
  path: string,
  tag: string,
  signal: AbortSignal,
): Promise<{ value: T; tag: string } | null> {
  markUnattended(signal);
  const response = await respond("GET", path, undefined, signal, { "if-none-match": tag });
  return response.status === 304
    ? null
    : { value: await response.json(), tag: response.headers.get("etag") ?? "" };
}

/** Signals of requests that a page sends without its user. */
const unattended = new WeakSet<AbortSignal>();

/** No request with this signal prolongs the session. */
export function markUnattended(signal: AbortSignal): void {
  unattended.add(signal);
}

/** Sends the request of an action with these values. */
export function run<T>(action: ActionTexts, json: Readonly<Record<string, unknown>>): Promise<T> {
  const { method, path, body } = requestOf(action, json);
  return send<T>(method, path, body ?? undefined);
}

/** Sends what makes something. `isNew` is false if it was there before. */
export async function create<T>(path: string, body: object): Promise<{ value: T; isNew: boolean }> {
  const response = await respond("POST", path, body);
  return { value: await response.json(), isNew: response.status === 201 };
}

/** Reads a response that is no JSON, for a download. */
export async function readBlob(path: string, query: Query): Promise<Blob> {
  return (await respond("GET", withQuery(path, query))).blob();
}

/** Returns the data of server-sent events. Throws if their stream is refused or breaks off. */
export async function* events(
  path: string,
  options: { body: object; signal: AbortSignal; headers?: Readonly<Record<string, string>> },
): AsyncGenerator<string> {
  const { body, signal, headers } = options;
  const response = await respond("POST", path, body, signal, headers);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  const found: string[] = [];
  const parser = createParser({ onEvent: ({ data }) => void found.push(data) });
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      parser.feed(value);
      yield* found.splice(0);
    }
  } finally {
    // Nothing waits for it: a stream that broke off cannot be cancelled.
    reader.cancel().catch(() => {});
  }
}

/** Returns a path of the API of these pages, with its parts encoded. */
export function apiPath(...parts: string[]): string {
  return [paths.api, ...parts.map(encodeURIComponent)].join("/");
}

/**
 * What a page arrives with and exchanges: the code of a link or an invitation, or the answer of an
 * issuer.
 */
export type Arrival = { code: string } | { response: string } | { invitation: string };

type Secrets =
  | { token: string }
  | { key: string }
  | { join: { code: string; join_id: string; name: string } };

/** The service accepts `token` or `code` from operators, the others from callers. */
export async function signIn(credentials: Arrival | Secrets): Promise<void> {
  setTimezone((await send<Session>("POST", sessionPath, credentials)).timezone);
}

export function signInChoices(): Promise<SignInChoices> {
  return send("GET", signInPath);
}

/** Ends the present session, or all sessions of its owner. */
export async function signOut(isEverywhere: boolean): Promise<void> {
  await send("DELETE", isEverywhere ? apiPath("sessions") : sessionPath);
  forgetPageSecret();
}

/** Returns the present session. Null: nobody is signed in. */
export async function presentSession(): Promise<Session | null> {
  // A browser that never signed in has no secret, and makes none before it does.
  if (!hasPageSecret()) return null;
  const session = await send<Session | null>("GET", sessionPath);
  if (session !== null) setTimezone(session.timezone);
  return session;
}

/** Changes with the same operation id are applied once. */
export async function send<T>(method: string, path: string, body?: object, signal?: AbortSignal): Promise<T> {
  const response = await respond(method, path, body, signal);
  const text = await response.text();
  return JSON.parse(text || "null");
}

async function respond(
  method: string,
  path: string,
  body?: object,
  signal?: AbortSignal,
  more: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const headers = {
    ...more,
    // How to sign in is no secret. The next person at the browser chooses another one.
    ...(!(method === "GET" && path === signInPath) && { "x-inkwell-request": pageSecret() }),
    ...(body && { "content-type": "application/json" }),
    ...(signal && unattended.has(signal) && { "x-inkwell-unattended": "1" }),
  };
  const response = await fetch(path, {
    method,
    headers,
    credentials: "same-origin",
    ...(body ? { body: JSON.stringify(body) } : {}),
    ...(signal ? { signal } : {}),
  }).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError(
      0,
      "unreachable",
      "The service did not respond. Check that it runs, then try again: a repeated change is applied once.",
      null,
    );
  });
  if (response.ok || response.status === 304 || (response.status === 503 && path === "/readyz"))
    return response;
  const error = await errorOf(response);
  const isOver = response.status === 401 && path !== sessionPath && !path.startsWith(signInPath);
  if (isOver || error.code === "sign_in_again") onSignedOut();
  if (isOver) throw new ApiError(401, error.code, "The session has ended. Sign in, and send it again.", null);
  throw error;
}

async function errorOf(response: Response): Promise<ApiError> {
  const { status } = response;
  const fallback = `The service responded with status ${status}. Its log has the details.`;
  try {
    const { error } = await response.json();
    return new ApiError(status, `${error.code}`, `${error.message ?? fallback}`, error.param ?? null);
  } catch {
    return new ApiError(status, "unreadable", fallback, null);
  }
}

function withQuery(path: string, query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, String(value));
  }
  return parameters.size === 0 ? path : `${path}?${parameters}`;
}
