/** Makes, changes and ends links by which many people join. Throws refusals. */
import { hash as digest, randomBytes } from "node:crypto";
import type { Actor } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { newIdNeeded, refusalOf } from "../ledger/refusals.ts";
import { changeLogRow } from "../store/change-log.ts";
import type { LinkRow, LinkSettings } from "../store/links.ts";
import { inLowerCase } from "../store/sql.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { codeBytes, hashOfCode, type InvitationSettings, requirePortal, urlOfCode } from "./invitations.ts";
import { isoTime, isoTimeOrNull } from "./json-objects.ts";
import { invalidValue } from "./refusals.ts";

interface NewLink extends LinkSettings {
  plan: string;
  domain?: string | undefined;
  accountsEndMs?: EpochMs | null | undefined;
}

/** A link, and its URL unless that was shown before. */
interface ShownLink {
  link: string | null;
  row: LinkRow;
}

interface ActionDependencies {
  store: Pick<Store, "links" | "plans" | "times">;
  actor: Actor;
  /** The operator token. */
  token(): Promise<string>;
  settings(): InvitationSettings;
}

export class LinkActions {
  readonly #deps: ActionDependencies;

  constructor(dependencies: ActionDependencies) {
    this.#deps = dependencies;
  }

  /** Makes one link for each operation id. A repetition returns its row without the URL. */
  async make(
    operation: string,
    { name, plan, seats, domain, endsMs, accountsEndMs = null }: NewLink,
  ): Promise<ShownLink> {
    const { store, actor } = this.#deps;
    const { by } = actor;
    const { send } = requirePortal(this.#deps.settings());
    if (domain !== undefined && send === null) {
      throw new Refusal(
        "no_mail_server",
        "Only a mailed link shows that somebody has an address of the domain, and the configuration has no mail server (events.mail). Nothing has changed. Set one, or leave the domain out.",
        { param: "domain" },
      );
    }
    const { offered, versions } = await store.plans();
    if (!offered.includes(plan)) {
      throw refusalOf(
        versions.has(plan) ? { kind: "retired_plan", plan } : { kind: "unknown_plan", plan, plans: offered },
      );
    }
    const { atMs } = store.times();
    this.#requireEnd(endsMs, accountsEndMs);
    const { code, hash } = await this.#newCode();
    const row: LinkRow = {
      id: `link_${digest("sha256", `${by}\n${operation}`, "hex").slice(0, 16)}`,
      name,
      plan,
      seats,
      taken: 0,
      domain: domain === undefined ? null : inLowerCase(domain),
      accountsEndMs,
      hash,
      by,
      createdMs: atMs,
      endsMs,
      endedMs: null,
    };
    const change = this.#change(row.id, null, logged(row), `${row.id} made`);
    if (await store.links.add(row, change)) return { link: this.#urlOf(code), row };
    const known = await this.row(row.id);
    const asked = [row.plan, row.domain, row.accountsEndMs];
    const isSame = [known.plan, known.domain, known.accountsEndMs].every((value, n) => value === asked[n]);
    if (isSame) return { link: null, row: known };
    throw new Refusal(
      "operation_differs",
      `Operation "${operation}" made another link before. ${newIdNeeded}`,
      {
        param: "operation_id",
      },
    );
  }

  async row(id: string): Promise<LinkRow> {
    const row = await this.#deps.store.links.link(id);
    if (row === null) throw new Refusal("link_not_found", `There is no link "${id}".`);
    return row;
  }

  /** Changes what is given. */
  async set(
    id: string,
    given: { [Name in keyof LinkSettings]?: LinkSettings[Name] | undefined },
  ): Promise<LinkRow> {
    const { store } = this.#deps;
    for (;;) {
      const row = await this.#openRow(id);
      const { name = row.name, seats = row.seats, endsMs = row.endsMs } = given;
      const settings = { name, seats, endsMs };
      if (seats < row.taken) {
        throw invalidValue(
          "seats",
          `seats must be at least ${row.taken}: so many are taken. Nothing has changed.`,
        );
      }
      if (given.endsMs !== undefined) this.#requireEnd(endsMs, row.accountsEndMs);
      const [before, after] = [logged(row), logged({ ...row, ...settings })];
      if (JSON.stringify(before) === JSON.stringify(after)) return row;
      // Somebody else may have changed it, or taken a seat.
      if (await store.links.set(row, settings, this.#change(id, before, after))) return await this.row(id);
    }
  }

  /** Makes another code. The one before ends at once, and so do mailed ones that wait. */
  async rotate(id: string): Promise<ShownLink> {
    requirePortal(this.#deps.settings());
    await this.#openRow(id);
    const { code, hash } = await this.#newCode();
    const change = this.#change(id, null, { rotated: true });
    if (!(await this.#deps.store.links.rotate(id, hash, change))) throw ended(id);
    return { link: this.#urlOf(code), row: await this.row(id) };
  }

  /** A repetition changes nothing. */
  async end(id: string): Promise<LinkRow> {
    const { store } = this.#deps;
    await this.row(id);
    const change = this.#change(id, { ended: false }, { ended: true }, `${id} ended`);
    await store.links.end(id, store.times().atMs, change);
    return await this.row(id);
  }

  async #openRow(id: string): Promise<LinkRow> {
    const row = await this.row(id);
    if (row.endedMs !== null) throw ended(id);
    return row;
  }

  #requireEnd(endsMs: EpochMs, accountsEndMs: EpochMs | null): void {
    const { atMs } = this.#deps.store.times();
    if (endsMs <= atMs) {
      throw invalidValue("ends_at", `ends_at must be after now, ${isoTime(atMs)}. Nothing has changed.`);
    }
    if (accountsEndMs === null || accountsEndMs >= endsMs) return;
    throw invalidValue(
      "accounts_end_at",
      `accounts_end_at must not be before the end of the link: accounts are opened until ${isoTime(endsMs)}. Nothing has changed.`,
    );
  }

  async #newCode(): Promise<{ code: string; hash: string }> {
    const code = randomBytes(codeBytes).toString("base64url");
    return { code, hash: hashOfCode(await this.#deps.token(), "link", code) };
  }

  #urlOf(code: string): string {
    return urlOfCode(requirePortal(this.#deps.settings()).portalUrl, "join", code);
  }

  /** `id`: of a change that is made once. */
  #change(subject: string, before: object | null, after: object, id?: string) {
    const { actor, store } = this.#deps;
    const named = id === undefined ? {} : { id };
    return changeLogRow({
      ...named,
      kind: "link",
      by: actor.by,
      atMs: store.times().atMs,
      subject,
      before,
      after,
    });
  }
}

function logged({ name, plan, seats, domain, endsMs, accountsEndMs }: LinkRow) {
  return {
    name,
    plan,
    seats,
    domain,
    ends_at: isoTime(endsMs),
    accounts_end_at: isoTimeOrNull(accountsEndMs),
  };
}

function ended(id: string): Refusal {
  return new Refusal(
    "link_ended",
    `Link ${id} was ended, which is final. Nothing has changed. Make another one.`,
  );
}
