/**
 * Requests for links by mail: new ones of invitations, and those that take a seat. All of them
 * have one answer, and the work begins after it, so neither the answer nor its time shows whether
 * an address is known.
 *
 * Guarantees that one mail is sent at a time, and at most three an hour to a mailbox.
 */
import { setImmediate } from "node:timers/promises";
import type { Logger } from "pino";
import type { Invitations } from "../../accounts/invitations.ts";
import type { Joins, MailedJoin } from "../../accounts/joins.ts";
import { Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import { TokenBucket } from "../../limits/token-bucket.ts";
import { addressKey } from "../../store/links.ts";
import { hourMs } from "../../units.ts";
import { clientOf } from "../connections.ts";

interface Mail {
  email: string;
  send(): Promise<void>;
}

export class NewLinks {
  readonly #invitations: Pick<Invitations, "renew" | "sendsLinks">;
  readonly #joins: Pick<Joins, "prepare">;
  readonly #logger: Pick<Logger, "error" | "warn">;
  readonly #clients = new TokenBucket(limits.newLinks);
  readonly #joining: TokenBucket;
  readonly #mailboxes = new TokenBucket(limits.mailedLinks, { perMs: hourMs });
  #waiting: Mail[] = [];
  #work: Promise<void> | null = null;

  constructor(
    invitations: Pick<Invitations, "renew" | "sendsLinks">,
    { joins, joining }: { joins: Pick<Joins, "prepare">; joining: TokenBucket },
    logger: Pick<Logger, "error" | "warn">,
  ) {
    this.#invitations = invitations;
    this.#joins = joins;
    this.#joining = joining;
    this.#logger = logger;
  }

  /** Whether people can ask for links. */
  get isOn(): boolean {
    return this.#invitations.sendsLinks;
  }

  /** Queues a mail. Throws a refusal for a client that asks too often. */
  ask(email: string, client: string): void {
    if (!this.isOn) {
      throw new Refusal("no_mail_server", "Links are not sent by mail here. Ask the operator.");
    }
    count(this.#clients, client);
    this.#queue({ email, send: () => this.#invitations.renew(email) });
  }

  /** Queues a mail that takes a seat. Throws a refusal that does not depend on the address. */
  async join(join: MailedJoin, client: string): Promise<void> {
    count(this.#joining, client);
    this.#queue({ email: join.email, send: await this.#joins.prepare(join) });
  }

  #queue(mail: Mail): void {
    if (this.#mailboxes.take(addressKey(mail.email)) > 0) return;
    if (this.#waiting.length >= limits.waitingLinks.most) {
      this.#logger.warn("a request for a new link was dropped, because too many wait for their mails");
      return;
    }
    this.#waiting.push(mail);
    this.#work ??= this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    // The answer is written first.
    await setImmediate();
    for (let mail = this.#waiting.shift(); mail !== undefined; mail = this.#waiting.shift()) {
      try {
        await mail.send();
      } catch (error) {
        // The message of a refusal has the address, and what the mail server says about it.
        const reason = error instanceof Refusal ? { code: error.code } : { err: error };
        this.#logger.error(reason, "a new link could not be sent");
      }
    }
    this.#work = null;
  }

  /** Resolves when the mail under way is sent. Others that wait are dropped. */
  async close(): Promise<void> {
    this.#waiting = [];
    await this.#work;
  }
}

/** Throws a refusal for a client that asks too often. */
function count(bucket: TokenBucket, client: string): void {
  const seconds = Math.ceil(bucket.take(clientOf(client)) / 1000);
  if (seconds === 0) return;
  throw new Refusal(
    "too_many_sign_ins",
    `Too many links were asked for from this address. Try again in ${seconds} s.`,
    { retryAfterSeconds: seconds },
  );
}
