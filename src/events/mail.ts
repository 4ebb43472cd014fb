/**
 * Sends some kinds of events by mail: about an account to its contact, about the service to its
 * operators.
 *
 * Guarantees at most one mail of a kind a day to an account, and to operators one of each kind and
 * model. Each new operator key and role has its own. A server that hangs costs its time limit.
 */
import { type MailConfig, type MailType, mailEndpoint, mailTypes } from "../config/events.ts";
import { messageOf } from "../errors.ts";
import type { Contact } from "../store/contacts.ts";
import type { ClaimedEvent } from "../store/events.ts";
import type { Store } from "../store/store.ts";
import { dayMs, type EpochMs, exactCredits, shortTime } from "../units.ts";
import { sendMail } from "./mail-server.ts";
import { filled, mailTextOf } from "./mail-texts.ts";
import { type Answer, answerText, type Receiver } from "./receiver.ts";

/** The data of an event. */
type EventValues = Readonly<Record<string, unknown>>;

interface MailOptions {
  config: MailConfig;
  store: Pick<Store, "events" | "contact" | "person">;
  nowMs(): EpochMs;
  /** Time for a mail. Servers may look at its text for minutes: RFC 5321, section 4.5.3.2.6. */
  mailMs: number;
  /** Where people choose the mail about their account. Null: nowhere. */
  portalUrl: string | null;
}

export class Mail implements Receiver {
  readonly #options: MailOptions;

  constructor(options: MailOptions) {
    this.#options = options;
  }

  async send(event: ClaimedEvent, signal: AbortSignal): Promise<Answer> {
    try {
      return await this.#send(event, signal);
    } catch (error) {
      const status = error instanceof Error && "responseCode" in error ? Number(error.responseCode) : null;
      const text = answerText(messageOf(error));
      return { kind: "failed", status, text, retryAfterMs: 0 };
    }
  }

  async #send(event: ClaimedEvent, signal: AbortSignal): Promise<Answer> {
    const { config, store, nowMs, mailMs, portalUrl } = this.#options;
    const data: EventValues = JSON.parse(event.data);
    const type = mailTypes.find((each) => each === kindOf(event.type, data));
    if (type === undefined) return skipped("is no kind of mail");
    if (!config.types.includes(type)) return skipped("is switched off for everybody");
    const contact = event.account === null ? null : await store.contact(event.account);
    const to = event.account === null ? await this.#operators(data) : (contact?.email ?? []);
    if (to.length === 0) return skipped("nobody has an e-mail address for it");
    // An operator knows what they make, such as the first keys of an import.
    if (type === "key.created" && !(await this.#isHolder(data.by, event.account)))
      return skipped("an operator made the key");
    if (contact !== null && isSwitchedOff(type, contact)) return skipped("the account does not want it");
    const field = ownMailOf[type] ?? "";
    const of = { endpoint: mailEndpoint, account: event.account ?? "", type: event.type };
    const sent = (await store.events.deliveredSince(of, nowMs() - dayMs))
      .map((each): EventValues => JSON.parse(each))
      .filter((each) => kindOf(event.type, each) === type);
    const isRepeated = !type.startsWith("operator.") && sent.some((each) => each[field] === data[field]);
    if (isRepeated) return skipped("one was sent today");
    const stop = portalUrl === null ? "" : `You can switch this mail off at ${portalUrl}.`;
    const values = { ...valuesOf(event, data, contact?.owner ?? event.account ?? ""), stop };
    const mail = filled(await mailTextOf(type, config.templates), values);
    // A mail that is sent again after a lost answer has the same id.
    const ends = AbortSignal.any([AbortSignal.timeout(mailMs), signal]);
    const response = await sendMail(config, { ...mail, to, id: event.id }, ends);
    const text = answerText(response);
    return { kind: "delivered", status: 250, text, retryAfterMs: 0 };
  }

  /** An operator who signs in is a person too, with another account or none. */
  async #isHolder(by: unknown, account: string | null): Promise<boolean> {
    const [, kind, id = ""] = /^(person|key):(.+)$/.exec(String(by)) ?? [];
    if (kind !== "person") return kind === "key";
    return (await this.#options.store.person(id))?.account === account;
  }

  /** Those of the configuration, and the person whose role or key it is. */
  async #operators({ by, person = by }: EventValues): Promise<string[]> {
    const { config, store } = this.#options;
    const [, id] = /^person:(.+)$/.exec(String(person)) ?? [];
    const email = id === undefined ? null : ((await store.person(id))?.email ?? null);
    return [...new Set([...config.operators, ...(email === null ? [] : [email])])];
  }

  /** Each mail has a connection of its own. */
  async close(): Promise<void> {}
}

/** Returns the kind of the mail about an event. Caps have their own. */
function kindOf(type: string, { scope }: EventValues): string {
  return type === "balance.low" && scope === "cap" ? "balance.cap" : type;
}

/**
 * The field of an event in which two mails of a kind differ. Absent: one a day. Those of
 * operator keys and roles are all their own.
 */
const ownMailOf: Partial<Record<MailType, string>> = {
  "key.expiring": "key",
  "model.down": "model",
  "model.out_of_credit": "model",
};

function isSwitchedOff(type: MailType, contact: Contact): boolean {
  const choices: Partial<Record<MailType, "on" | "off">> = {
    "balance.low": contact.balanceLowMail,
    "balance.cap": contact.balanceCapMail,
    "balance.exhausted": contact.balanceExhaustedMail,
    "key.expiring": contact.keyExpiringMail,
  };
  return choices[type] === "off";
}

function skipped(text: string): Answer {
  return { kind: "skipped", status: null, text, retryAfterMs: 0 };
}

/** The values that texts can name. */
function valuesOf({ atMs, account }: ClaimedEvent, data: EventValues, owner: string): Record<string, string> {
  const credits = (micro: unknown) => (typeof micro === "number" ? exactCredits(micro) : "");
  const time = (ms: unknown) => (typeof ms === "string" ? shortTime(ms) : "");
  return {
    ...Object.fromEntries(Object.entries(data).map(([name, value]) => [name, `${value ?? "-"}`])),
    account: account ?? "",
    owner,
    time: new Date(atMs).toISOString(),
    left: credits(data.left_micro),
    of: credits(data.of_micro),
    expires: time(data.expires_at),
    percent: percentOf(data),
    credits: `${data.scope} credits`,
    whose: data.key === undefined ? `your account ${account}` : `your key ${data.key}`,
  };
}

/**
 * Of several thresholds that are reached at once, the first one is mailed. Of used-up additional
 * credits, no grant is left to compare with.
 */
function percentOf({ percent, left_micro: left, of_micro: of }: EventValues): string {
  if (typeof percent !== "number" || typeof left !== "number" || typeof of !== "number") return "";
  return String(Math.max(percent, of === 0 ? 100 : Math.floor((100 * (of - left)) / of)));
}
