/**
 * Invitations: one-time links to the portal for people without an identity provider.
 *
 * The code of a link has 256 bits and is in the fragment of a URL, so that no server sees it until
 * somebody presses the button of the page. The database has a hash keyed with the operator token,
 * and so another token ends all links. Anyone who has a link is taken for its person.
 */
import { createHmac, randomBytes } from "node:crypto";
import Type, { type Static } from "typebox";
import { type Actor, hasRole } from "../actors.ts";
import { messageOf, Refusal } from "../errors.ts";
import { refusalOf } from "../ledger/refusals.ts";
import { isClosedAt } from "../ledger/rows.ts";
import { changeLogRow } from "../store/change-log.ts";
import { invitationIssuer } from "../store/invitations.ts";
import { newPerson, type PersonRow } from "../store/people.ts";
import { linkChange } from "../store/person-changes.ts";
import { inLowerCase } from "../store/sql.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { isoTime, objectFor, orNull, text, time } from "./json-objects.ts";
import { invalidValue } from "./refusals.ts";

/** A link can be used for this time. */
export const linkLifeMs = 7 * 86_400_000;
export const codeBytes = 32;
/** The actor of links that people ask for. */
const byRequest: Actor = { by: "service:new_link", role: "support" };

/** The values in a mail with a link. */
export interface InvitationMail {
  /** Null: the use of the link opens it. */
  account: string | null;
  owner: string | null;
  email: string;
  link: string;
  portalUrl: string;
  expiresMs: EpochMs;
}

/** A link. It is null if it was sent by mail. The address is empty if the person has none. */
interface Invitation extends Pick<InvitationMail, "email" | "expiresMs"> {
  account: string;
  link: string | null;
}

export const invitationObject = objectFor<Invitation>("Invitation")({
  account: [text, ({ account }) => account],
  email: [
    orNull(Type.String({ description: "null: of the person who has joined by a link, without one" })),
    ({ email }) => (email === "" ? null : email),
  ],
  link: [orNull(Type.String({ description: "shown only here; null if it was mailed" })), ({ link }) => link],
  expires_at: [time, ({ expiresMs }) => isoTime(expiresMs)],
});
export type InvitationJson = Static<typeof invitationObject.schema>;

export interface InvitationSettings {
  /** `portal.url`. Null: no link is possible. */
  portalUrl: string | null;
  /** Sends a mail. Null: the configuration has no mail server. */
  send: ((mail: InvitationMail) => Promise<void>) | null;
}

export const noInvitations: InvitationSettings = { portalUrl: null, send: null };

/** The code of an invitation or of a link by which many join, or the join id of a browser. */
type CodeKind = "invitation" | "link" | "joiner";

/** Hashes a code. Another operator token ends all of them. */
export function hashOfCode(token: string, kind: CodeKind, code: string): string {
  return createHmac("sha256", token).update(`${kind} ${code}`).digest("hex");
}

/** Returns the URL of a code, which is in the fragment. */
export function urlOfCode(portalUrl: string, name: "invite" | "join", code: string): string {
  return `${portalUrl.replace(/\/$/, "")}/#${name}=${code}`;
}

/** Refuses what needs the URL of the portal. */
export function requirePortal({ portalUrl, send }: InvitationSettings): {
  portalUrl: string;
  send: InvitationSettings["send"];
} {
  if (portalUrl !== null) return { portalUrl, send };
  throw new Refusal(
    "no_portal_url",
    "Links need the URL of the portal, which is missing. Set portal.url, and restart the service. Nothing has changed.",
  );
}

interface InvitationDependencies {
  store: Pick<
    Store,
    "accountSnapshot" | "contact" | "invitations" | "openAccountsWithEmail" | "putAccount" | "times"
  >;
  /** The operator token. */
  token(): Promise<string>;
  settings(): InvitationSettings;
}

interface InviteOptions {
  /** Default: the address of the contact. */
  email?: string | undefined;
  isMailed: boolean;
}

export class Invitations {
  readonly #deps: InvitationDependencies;

  constructor(dependencies: InvitationDependencies) {
    this.#deps = dependencies;
  }

  /** Whether people can ask for new links. */
  get sendsLinks(): boolean {
    const { portalUrl, send } = this.#deps.settings();
    return portalUrl !== null && send !== null;
  }

  /** Makes a link, which ends the one before. Throws a refusal if nothing has changed. */
  async invite(account: string, { email, isMailed }: InviteOptions, actor: Actor): Promise<Invitation> {
    const { portalUrl, send } = this.requireSender(isMailed);
    const contact = await this.#contactFor(account, { email, isMailed }, actor);
    const { store } = this.#deps;
    const code = randomBytes(codeBytes).toString("base64url");
    const { nowMs, atMs } = store.times();
    const expiresMs = nowMs + linkLifeMs;
    const { by } = actor;
    const isAdded = await store.invitations.add(
      {
        account,
        email: contact.email,
        hash: await this.#hash(code),
        by,
        createdMs: nowMs,
        endsMs: expiresMs,
      },
      changeLogRow({
        kind: "invitation",
        by,
        atMs,
        account,
        before: null,
        after: { expires_at: isoTime(expiresMs) },
      }),
    );
    if (!isAdded) throw contactDiffers(account, "was changed at the same time");
    const link = urlOfCode(portalUrl, "invite", code);
    const made = { account, email: contact.email, expiresMs };
    if (send === null) return { ...made, link };
    try {
      await send({ ...made, owner: contact.owner, link, portalUrl });
    } catch (error) {
      throw new Refusal(
        "mail_failed",
        `The mail server has not taken the mail to ${contact.email}: ${messageOf(error)}. An earlier link of account ${account} has ended. Try again, or give the link out yourself.`,
      );
    }
    return { ...made, link: null };
  }

  /** Uses a link up. Returns its person. Throws one refusal, whatever the reason. */
  async exchange(code: string): Promise<PersonRow> {
    const { store } = this.#deps;
    const { nowMs, atMs } = store.times();
    const sub = randomBytes(16).toString("hex");
    const candidate = newPerson({ issuer: invitationIssuer, sub }, nowMs);
    const { id } = candidate;
    const exchange = { hash: await this.#hash(code), nowMs, person: candidate };
    const change = (account: string) => linkChange(id, account, { by: `person:${id}`, atMs });
    const person = await store.invitations.exchange(exchange, change);
    if (person !== null) return person;
    throw refusalOf({ kind: "invalid_invitation" });
  }

  /** Mails a new link to an address that was invited before. Does nothing for another address. */
  async renew(email: string): Promise<void> {
    if (!this.sendsLinks) return;
    const { store } = this.#deps;
    const [account, ...others] = await store.openAccountsWithEmail(email);
    if (account === undefined || others.length > 0) return;
    if (!(await store.invitations.wasInvited(account, email))) return;
    await this.renewOf(account);
  }

  /** Mails a new link to the contact of an account. Does nothing if nobody may use it. */
  async renewOf(account: string): Promise<void> {
    const { store } = this.#deps;
    const snapshot = await store.accountSnapshot(account);
    const email = (await store.contact(account))?.email ?? null;
    if (snapshot === null || email === null || isClosedAt(snapshot.account, snapshot.times.atMs)) return;
    const person = await store.invitations.personOf(account, email);
    if (person !== null && person.suspendedMs !== null) return;
    await this.invite(account, { email, isMailed: true }, byRequest);
  }

  /** Refuses links that cannot be made or mailed. */
  requireSender(isMailed: boolean): { portalUrl: string; send: InvitationSettings["send"] } {
    const { portalUrl, send } = requirePortal(this.#deps.settings());
    if (isMailed && send === null) {
      throw new Refusal(
        "no_mail_server",
        "The configuration has no mail server (events.mail). Nothing has changed.",
      );
    }
    return { portalUrl, send: isMailed ? send : null };
  }

  /**
   * Returns the contact of an open account. A missing address is set to the given one; without
   * one, the link is for the person who has joined by a link.
   */
  async #contactFor(
    account: string,
    { email: given, isMailed }: InviteOptions,
    actor: Actor,
  ): Promise<{ email: string; owner: string | null }> {
    const { store } = this.#deps;
    const snapshot = await store.accountSnapshot(account);
    if (snapshot === null) throw refusalOf({ kind: "account_not_found", account });
    if (isClosedAt(snapshot.account, snapshot.times.atMs)) {
      throw refusalOf({ kind: "account_closed", account });
    }
    const { email = null, owner = null } = (await store.contact(account)) ?? {};
    if (email !== null) {
      if (given !== undefined && inLowerCase(given) !== inLowerCase(email)) {
        throw contactDiffers(account, "has another address");
      }
      await this.#requireActive(account, email);
      return { email, owner };
    }
    if (given === undefined) {
      const joined = isMailed ? null : await store.invitations.personOf(account, "");
      if (joined === null)
        throw invalidValue(
          "email",
          `Account ${account} has no e-mail address. Name one. Nothing has changed.`,
        );
      await this.#requireActive(account, "");
      return { email: "", owner };
    }
    if (!hasRole(actor.role, "operator")) {
      throw new Refusal(
        "not_permitted",
        `Account ${account} has no e-mail address, and only the role operator sets it. Nothing has changed.`,
      );
    }
    await this.#requireActive(account, given);
    const draft = { id: account, plan: null, contact: { email: given } };
    await store.putAccount(draft, { by: actor.by, dryRun: false });
    return { email: given, owner };
  }

  async #requireActive(account: string, email: string): Promise<void> {
    const known = await this.#deps.store.invitations.personOf(account, email);
    if (known === null || known.suspendedMs === null) return;
    throw new Refusal(
      "person_suspended",
      `Person ${known.id} is suspended, and has the account ${account} by an invitation. Nothing has changed. End the suspension first.`,
    );
  }

  async #hash(code: string): Promise<string> {
    return hashOfCode(await this.#deps.token(), "invitation", code);
  }
}

function contactDiffers(account: string, how: string): Refusal {
  return new Refusal(
    "contact_differs",
    `The contact of account ${account} ${how}. Nothing has changed. Invitations go to the address of the contact only.`,
    { param: "email" },
  );
}
