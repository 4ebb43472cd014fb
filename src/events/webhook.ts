/**
 * Sends events to one URL, as Standard Webhooks 1.0 specifies.
 *
 * Guarantees: a request ends within its time, whatever the receiver does. Of a response at most
 * 16 KiB of headers and `bodyBytesMax` of the body are read. No redirect is followed, and no
 * private address is connected to unless the configuration lists its network.
 */
import type { BlockList } from "node:net";
import { Pool } from "undici";
import { messageOf } from "../errors.ts";
import { outgoing } from "../outgoing.ts";
import type { ClaimedEvent } from "../store/events.ts";
import { allowedLookup, requireAllowedHost } from "./private-addresses.ts";
import { type Answer, answerText, type Receiver } from "./receiver.ts";
import { signedHeaders } from "./signature.ts";

interface WebhookOptions {
  url: string;
  /** The current secret, and the previous one during a rotation. */
  secrets: readonly string[];
  /** Private networks that may be connected to. */
  networks: BlockList;
  /** Time for a request and its response. */
  requestMs: number;
  /** Requests at the same time. */
  connectionsMax: number;
}

const headerBytesMax = 16 * 1024;
const bodyBytesMax = 4096;
const retryAfterMsMax = 3_600_000;

export class Webhook implements Receiver {
  readonly #options: WebhookOptions;
  readonly #url: URL;
  readonly #pool: Pool;

  constructor(options: WebhookOptions) {
    const { url, networks, requestMs, connectionsMax } = options;
    this.#options = options;
    this.#url = new URL(url);
    this.#pool = new Pool(this.#url.origin, {
      ...outgoing,
      connections: connectionsMax,
      pipelining: 1,
      connect: { timeout: requestMs, lookup: allowedLookup(networks) },
      headersTimeout: requestMs,
      bodyTimeout: requestMs,
      maxHeaderSize: headerBytesMax,
    });
  }

  async send(event: ClaimedEvent): Promise<Answer> {
    const { networks, requestMs, secrets } = this.#options;
    const body = bodyOf(event);
    try {
      requireAllowedHost(this.#url.hostname, networks);
      const response = await this.#pool.request({
        method: "POST",
        path: `${this.#url.pathname}${this.#url.search}`,
        headers: {
          "content-type": "application/json",
          "user-agent": "Inkwell",
          ...signedHeaders({ id: event.id, body, nowMs: Date.now() }, secrets),
        },
        body,
        signal: AbortSignal.timeout(requestMs),
      });
      const { statusCode: status, headers } = response;
      // The status decides. A body that cannot be read changes nothing.
      const text = await beginningOf(response.body);
      const kind = status >= 200 && status < 300 ? "delivered" : "failed";
      return { kind, status, text, retryAfterMs: retryAfterIn(headers["retry-after"]) };
    } catch (error) {
      const cause = error instanceof Error && error.message === "" ? error.cause : error;
      return { kind: "failed", status: null, text: answerText(messageOf(cause)), retryAfterMs: 0 };
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }
}

/** The journal number tells receivers the order of the events of an account. */
function bodyOf({ type, atMs, account, seq, data }: ClaimedEvent): string {
  const about = account === null ? {} : { account, number: seq };
  const fields: object = JSON.parse(data);
  return JSON.stringify({ type, timestamp: new Date(atMs).toISOString(), data: { ...about, ...fields } });
}

/** Returns text of the body, at most so much of it as is stored. The rest is not read. */
async function beginningOf(body: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      if (!(chunk instanceof Uint8Array)) break;
      chunks.push(Buffer.from(chunk));
      bytes += chunk.length;
      if (bytes >= bodyBytesMax) break;
    }
  } catch (error) {
    return answerText(`${Buffer.concat(chunks).toString("utf8")} [${messageOf(error)}]`);
  }
  return answerText(Buffer.concat(chunks).toString("utf8"));
}

/** Reads seconds. A date says nothing without the clock of the receiver, and is ignored. */
function retryAfterIn(header: string | string[] | undefined): number {
  if (typeof header !== "string" || !/^\d{1,9}$/.test(header)) return 0;
  return Math.min(Number(header) * 1000, retryAfterMsMax);
}
