/**
 * Requests for new links of invitations. All of them have one answer, and the work begins after
 * it, so neither the answer nor its time shows whether an address is known.
 *
 * Guarantees that one mail is sent at a time, and at most three an hour to a mailbox.
 */
import { setImmediate } from "node:timers/promises";
import type { Logger } from "pino";
import type { Invitations } from "../../accounts/invitations.ts";
import { Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import { TokenBucket } from "../../limits/token-bucket.ts";
import { inLowerCase } from "../../store/sql.ts";
import { hourMs } from "../../units.ts";
import { clientOf } from "../connections.ts";

export class NewLinks {
  readonly #invitations: Pick<Invitations, "renew" | "sendsLinks">;
  readonly #logger: Pick<Logger, "error" | "warn">;
  readonly #clients = new TokenBucket(limits.newLinks);
  readonly #mailboxes = new TokenBucket(limits.mailedLinks, { perMs: hourMs });
  #waiting: string[] = [];
  #work: Promise<void> | null = null;

  constructor(
    invitations: Pick<Invitations, "renew" | "sendsLinks">,
    logger: Pick<Logger, "error" | "warn">,
  ) {
    this.#invitations = invitations;
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
    const seconds = Math.ceil(this.#clients.take(clientOf(client)) / 1000);
    if (seconds > 0) {
      throw new Refusal(
        "too_many_sign_ins",
        `Too many links were asked for from this address. Try again in ${seconds} s.`,
        { retryAfterSeconds: seconds },
      );
    }
    if (this.#mailboxes.take(inLowerCase(email)) > 0) return;
    if (this.#waiting.length >= limits.waitingLinks.most) {
      this.#logger.warn("a request for a new link was dropped, because too many wait for their mails");
      return;
    }
    this.#waiting.push(email);
    this.#work ??= this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    // The answer is written first.
    await setImmediate();
    for (let email = this.#waiting.shift(); email !== undefined; email = this.#waiting.shift()) {
      try {
        await this.#invitations.renew(email);
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
