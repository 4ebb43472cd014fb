/** The links of `inkwell account import --invite`. */
import { existsSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { csvOf } from "../accounts/csv.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { OperatorRefusal } from "../accounts/refusals.ts";
import { OperatorError } from "../errors.ts";
import type { Cli } from "./cli.ts";
import { count } from "./format.ts";

interface Counts {
  invited: number;
  known: number;
  withoutAddress: number;
}

/**
 * Invites the people of an import: to a new CSV file, which only its owner can read, or by mail.
 * People who have used a link before get no other one, so the import can be repeated.
 */
export class ImportInvitations {
  readonly #actions: OperatorActions;
  /** Null: by mail. */
  readonly #path: string | null;

  /** Throws if no link can be given out. */
  constructor(actions: OperatorActions, path: string | null) {
    actions.invitations.require({ isMailed: path === null });
    if (path !== null && existsSync(path)) {
      throw new OperatorError(`${path} already exists. Nothing was imported. Name a new file for the links.`);
    }
    this.#actions = actions;
    this.#path = path;
  }

  /** Invites the people of these accounts, and remarks on those who were not. */
  async invite(cli: Cli, accounts: readonly string[]): Promise<void> {
    const { invitations, store } = this.#actions;
    const file = this.#path === null ? null : await open(this.#path, "wx", 0o600);
    const counts: Counts = { invited: 0, known: 0, withoutAddress: 0 };
    try {
      await file?.write(csvOf([["account", "email", "link"]]));
      for (const account of accounts) {
        const email = (await store.contact(account))?.email ?? null;
        if (email === null) counts.withoutAddress += 1;
        else if (await invitations.isUsed(account, email)) counts.known += 1;
        else if (await this.#inviteOne(cli, { account, email }, file)) counts.invited += 1;
      }
      await file?.sync();
    } finally {
      await file?.close();
    }
    this.#report(cli, counts);
  }

  /** Returns false after a refusal, such as that of a mailbox. Others are invited all the same. */
  async #inviteOne(
    cli: Cli,
    { account, email }: { account: string; email: string },
    file: FileHandle | null,
  ): Promise<boolean> {
    const { invitations, actor } = this.#actions;
    try {
      const { link } = await invitations.invite(account, { email, isMailed: file === null }, actor);
      await file?.write(csvOf([[account, email, link]]));
      return true;
    } catch (error) {
      if (!(error instanceof OperatorRefusal)) throw error;
      cli.remark(`Account ${account} has no invitation: ${error.message}`);
      cli.exitCode = 1;
      return false;
    }
  }

  #report(cli: Cli, { invited, known, withoutAddress }: Counts): void {
    const links = this.#path === null ? "mailed" : `in ${this.#path}, and shown nowhere else`;
    cli.remark(
      invited === 0
        ? "Nobody was invited."
        : `${count(invited, "person", "people")} invited. The links are ${links}.`,
    );
    if (known > 0)
      cli.remark(`${count(known, "person has", "people have")} used a link before, and got no new one.`);
    if (withoutAddress > 0)
      cli.remark(`${count(withoutAddress, "account has", "accounts have")} no e-mail address.`);
  }
}
