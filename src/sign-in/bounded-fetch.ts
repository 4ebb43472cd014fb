/**
 * Requests to the issuer. An answer is read whole, within a time and a size, before anything
 * parses it. No redirect is followed: it could lead the client secret to another host.
 */
import type { CustomFetch } from "openid-client";
import { messageOf } from "../errors.ts";
import { fieldOf } from "../objects.ts";
import "../outgoing.ts";

/** An ID token with thousands of groups fits. */
const answerBytesMax = 256 * 1024;
/** Time of one request, its answer included. */
export const answerSeconds = 10;

/** Statuses with which a proxy or a limit asks to come later. */
const laterStatuses = [408, 425, 429];

/** The issuer does not answer, or fails itself. Trying again later may help. */
export class IssuerAwayError extends Error {
  override readonly name = "IssuerAwayError";
}

export const boundedFetch: CustomFetch = async (url, { body, signal, ...options }) => {
  const host = new URL(url).host;
  try {
    const response = await fetch(url, {
      ...options,
      ...(body === undefined || body === null ? {} : { body: formOf(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
    const { status } = response;
    if (status >= 500 || laterStatuses.includes(status))
      throw new IssuerAwayError(`${host} responds with status ${status}`);
    const bytes = await bodyOf(response, host);
    const headers = new Headers(response.headers);
    // The client library reads it first, and it does not tell a person from a client.
    if (options.method === "POST" && namesError(bytes)) headers.delete("www-authenticate");
    // A response with one of these statuses cannot have a body.
    const hasBody = ![204, 205, 304].includes(status);
    return new Response(hasBody ? bytes : null, { status, headers });
  } catch (error) {
    if (error instanceof IssuerAwayError) throw error;
    throw new IssuerAwayError(`${host} cannot be reached: ${fetchFailureOf(error)}`, { cause: error });
  }
};

/** Whether it is an error of OAuth (RFC 6749, 5.2). */
function namesError(body: Uint8Array): boolean {
  try {
    return typeof fieldOf(JSON.parse(Buffer.from(body).toString()), "error") === "string";
  } catch {
    return false;
  }
}

type FetchBody = NonNullable<Parameters<CustomFetch>[1]["body"]>;

/** Bodies are forms, which the client sends as texts. */
function formOf(body: FetchBody): string | URLSearchParams {
  if (typeof body === "string" || body instanceof URLSearchParams) return body;
  throw new TypeError("requests to the issuer have forms as their bodies");
}

async function bodyOf(response: Response, host: string): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of response.body ?? []) {
    length += piece.length;
    if (length > answerBytesMax) {
      throw new IssuerAwayError(`${host} responds with more than ${answerBytesMax / 1024} KiB`);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** `fetch failed` has the reason in its cause. */
function fetchFailureOf(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return `no answer within ${answerSeconds} s`;
  }
  return messageOf(error instanceof Error && error.cause instanceof Error ? error.cause : error);
}
