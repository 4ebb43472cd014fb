/**
 * Joining by a link, as the person before the page: a seat opens an account, and the person is its
 * only one.
 *
 * Guarantees that a repetition with the same join id has the same account, for an hour: the answer
 * may be lost, or two tabs may try. Later the id opens nothing, since the next person may sit
 * before the same browser.
 */
import { randomBytes } from "node:crypto";
import { Refusal } from "../errors.ts";
import { refusalOf } from "../ledger/refusals.ts";
import type { AccountDraft } from "../store/contacts.ts";
import { invitationIssuer } from "../store/invitations.ts";
import { addressKey, byLink, hasEnded, type LinkRow, type SeatDraft, type SeatRow } from "../store/links.ts";
import { newPerson, type PersonRow } from "../store/people.ts";
import { inLowerCase } from "../store/sql.ts";
import type { Store } from "../store/store.ts";
import { hourMs } from "../units.ts";
import {
  codeBytes,
  hashOfCode,
  type InvitationSettings,
  type Invitations,
  linkLifeMs,
  requirePortal,
  urlOfCode,
} from "./invitations.ts";
import { invalidValue } from "./refusals.ts";
import * as rules from "./value-rules.ts";

/** The input of somebody who joins without a mail server. */
export interface Join {
  code: string;
  joinId: string;
  name: string;
}

/** The input of somebody who joins with a mail server. */
export interface MailedJoin {
  code: string;
  email: string;
  name: string;
}

interface JoinDependencies {
  store: Pick<Store, "links" | "person" | "putAccount" | "times">;
  invitations: Pick<Invitations, "exchange" | "renewOf">;
  /** The operator token. */
  token(): Promise<string>;
  settings(): InvitationSettings;
}

export class Joins {
  readonly #deps: JoinDependencies;

  constructor(dependencies: JoinDependencies) {
    this.#deps = dependencies;
  }

  /** Takes a seat, or returns the person of the seat that the same join id took just now. */
  async join({ code, joinId, name }: Join): Promise<PersonRow> {
    if (this.#deps.settings().send !== null) {
      throw invalidValue(
        "join",
        "People join by mail here: ask for a link with an address (POST /api/sign-in/joins).",
      );
    }
    const owner = typedName(name, "join.name");
    const link = await this.#linkOf(code);
    const joiner = hashOfCode(await this.#deps.token(), "joiner", `${link.id} ${joinId}`);
    const seat = await this.#deps.store.links.seat(link.id, joiner);
    if (seat !== null) return await this.#again(seat);
    const { hash } = link;
    try {
      return await this.#open(link, { owner, email: null }, { joiner, hash, isMailed: false });
    } catch (error) {
      // Another tab was faster.
      const taken = await this.#deps.store.links.seat(link.id, joiner);
      if (taken === null) throw error;
      return await this.#again(taken);
    }
  }

  /**
   * Returns the work that mails a one-time link to an address. Throws a refusal that does not
   * depend on who has the address.
   */
  async prepare({ code, email, name }: MailedJoin): Promise<() => Promise<void>> {
    const { settings } = this.#deps;
    if (settings().send === null) {
      throw new Refusal("no_mail_server", "People join without a mail here. Load this page again.");
    }
    requirePortal(settings());
    const owner = typedName(name, "name");
    const link = await this.#linkOf(code);
    this.#requireSeats(link);
    const domain = inLowerCase(email.slice(email.lastIndexOf("@") + 1));
    if (link.domain !== null && link.domain !== domain) {
      throw new Refusal(
        "domain_differs",
        `This link is for addresses that end in @${link.domain}. Use yours of that domain.`,
        { param: "email" },
      );
    }
    return () => this.#mail(link, owner, email);
  }

  /** An address that is known gets a link to its own account, and takes no further seat. */
  async #mail(link: LinkRow, owner: string, email: string): Promise<void> {
    const { store, invitations, settings, token } = this.#deps;
    const { portalUrl, send } = requirePortal(settings());
    if (send === null) return;
    const joiner = addressKey(email);
    const seat = await store.links.seat(link.id, joiner);
    const [account, ...others] = await store.links.accountsWithAddress(joiner);
    const own = seat?.account ?? (others.length === 0 ? account : undefined);
    if (own !== undefined) return await invitations.renewOf(own);
    const code = randomBytes(codeBytes).toString("base64url");
    const { nowMs } = store.times();
    const expiresMs = nowMs + linkLifeMs;
    const isAsked = await store.links.ask({
      link: link.id,
      joiner,
      hash: hashOfCode(await token(), "invitation", code),
      name: owner,
      email,
      askedMs: nowMs,
      endsMs: expiresMs,
      account: null,
      person: null,
      joinedMs: null,
    });
    if (!isAsked) return;
    const url = urlOfCode(portalUrl, "invite", code);
    await send({ account: null, owner: null, email, link: url, portalUrl, expiresMs });
  }

  /** Uses a mailed link up: one that takes a seat, or an invitation. Returns its person. */
  async exchange(code: string): Promise<PersonRow> {
    const { store, invitations, token } = this.#deps;
    const hash = hashOfCode(await token(), "invitation", code);
    const seat = await store.links.seatWithCode(hash);
    const link = seat && (await store.links.link(seat.link));
    if (seat === null || link === null) return await invitations.exchange(code);
    const { joiner, name, email } = seat;
    // The address has got an account since.
    if ((await store.links.accountsWithAddress(joiner)).length === 1)
      throw refusalOf({ kind: "invalid_invitation" });
    return await this.#open(link, { owner: name ?? "", email }, { joiner, hash, isMailed: true });
  }

  /** Returns the link of a code. */
  async #linkOf(code: string): Promise<LinkRow> {
    const { store, token } = this.#deps;
    const link = await store.links.withCode(hashOfCode(await token(), "link", code));
    if (link === null) throw refusalOf({ kind: "invalid_link" });
    return link;
  }

  /** Opens the account of a seat. Throws a refusal, and then nothing has changed. */
  async #open(
    link: LinkRow,
    { owner, email }: { owner: string; email: string | null },
    seat: Pick<SeatDraft, "joiner" | "hash" | "isMailed">,
  ): Promise<PersonRow> {
    const { store } = this.#deps;
    const person = newPerson({ issuer: invitationIssuer, sub: randomBytes(16).toString("hex") }, 0);
    for (;;) {
      const draft: AccountDraft = {
        id: accountNameOf(link),
        plan: link.plan,
        contact: { owner, email },
        endsMs: link.accountsEndMs,
        seat: { ...seat, link: link.id, person },
      };
      const outcome = await store.putAccount(draft, { by: byLink(link.id), dryRun: false });
      switch (outcome.kind) {
        case "opened": {
          const opened = await store.person(person.id);
          if (opened === null) throw new Error("the person of a seat is there");
          return opened;
        }
        case "exists":
          // Another account has the name.
          continue;
        case "unknown_plan":
        case "retired_plan":
          throw new Refusal(
            "not_admitted",
            "Your account cannot be opened now. Ask whoever gave you the link.",
            { detail: `the plan ${link.plan} of the link ${link.id} is not among the current plans` },
          );
        default:
          throw refusalOf(outcome);
      }
    }
  }

  /** Throws the refusal of a link that has no seats to give. */
  #requireSeats(link: LinkRow): void {
    if (hasEnded(link, this.#deps.store.times().atMs)) throw refusalOf({ kind: "link_ended" });
    if (link.taken >= link.seats) throw refusalOf({ kind: "link_full" });
  }

  async #again({ person: id, joinedMs }: SeatRow): Promise<PersonRow> {
    const { store } = this.#deps;
    const isRecent = joinedMs !== null && store.times().nowMs - joinedMs < hourMs;
    const person = isRecent && id !== null ? await store.person(id) : null;
    if (person !== null && person.suspendedMs === null) return person;
    throw refusalOf({ kind: "already_joined" });
  }
}

/**
 * Returns a name as it is stored: without control characters, which a page or a copy may have
 * brought.
 */
function typedName(name: string, param: string): string {
  const clean = name
    .replace(/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u202A-\u202E\u2066-\u2069]+/gu, " ")
    .replace(/\s+/g, " ")
    .trim();
  if (rules.typedName.pattern.test(clean)) return clean;
  throw invalidValue(param, `${param} must be ${rules.typedName.rule}.`);
}

const slugMax = 40;

/** `informatics-1-7f3a9c2e41d0`: the digits are random. */
function accountNameOf({ name }: LinkRow): string {
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const slug = plain
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, slugMax)
    .replace(/^-+|-+$/g, "");
  return `${slug === "" ? "link" : slug}-${randomBytes(6).toString("hex")}`;
}
