/**
 * People who sign in: who they are here, what the rules give them, and their accounts.
 *
 * Guarantees that a person has one account however often a sign-in is repeated, broken off or made
 * twice at the same time; that a rule changes only plans that a rule has set; and that no sign-in
 * ends a suspension by an operator. An account that exists is linked only to somebody whose issuer
 * confirms the address of its contact, if a rule or `link_contacts` lets them in, no other open
 * account has that address, and no person was ever linked to it.
 */
import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import { isHigherRole } from "../actors.ts";
import { invariant, Refusal } from "../errors.ts";
import type { TellAccess } from "../ledger/events.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { refusalOf } from "../ledger/refusals.ts";
import type { AccountRow, JournalKind } from "../ledger/rows.ts";
import { endOf } from "../ledger/windows.ts";
import { accountOfPerson, newPerson, type PersonFacts, type PersonRow } from "../store/people.ts";
import { eraseChange, linkChange, moveChange, roleChange } from "../store/person-changes.ts";
import type { ListedEntry, Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import type { Identity } from "./claims.ts";
import { notAdmitted } from "./refusals.ts";
import { planOf, recordOf, roleBefore, roleNow, roleRuleOf, ruleBy, type Verdict } from "./rules.ts";
import type { RoleRule, SignInSettings } from "./settings.ts";

/** Who opens, changes and suspends accounts by the rules. The journal names it. */
const byRules = "service:sign_in";

interface PeopleDependencies {
  store: Store;
  ledger: Pick<Ledger, "apply">;
  logger: Pick<Logger, "info" | "warn" | "error">;
  /** Default: nobody hears of a new role. */
  tell?: TellAccess | undefined;
}

interface Admission {
  plan: Verdict<string>;
  linkable: string | null;
  settings: SignInSettings;
  identity: Identity;
}

/** Names of accounts that rules open: `p-` and the digits of the person. */
const generatedName = /^p-[0-9a-f]{16}$/;
const lapsingAtOnce = 100;
/** Rules suspend active accounts only, so few of their suspensions follow one another. */
const suspensionsRead = 10;
const wasErased = "the data of the person was erased meanwhile";

export class People {
  readonly #deps: PeopleDependencies;

  constructor(dependencies: PeopleDependencies) {
    this.#deps = dependencies;
  }

  /**
   * Returns the person of an identity, after everything that the sign-in changes. Throws a refusal
   * for somebody whom no rule lets in there.
   */
  async admit(
    identity: Identity,
    listener: "operator" | "portal",
    settings: SignInSettings,
  ): Promise<PersonRow> {
    const { store } = this.#deps;
    const role = roleRuleOf(identity, settings);
    const plan = planOf(identity, settings);
    const known = await this.#known(identity, settings);
    const mayLink = listener === "portal" && (plan.value !== null || settings.linksContacts);
    const linkable = mayLink ? await this.#linkable(identity, known) : null;
    if (known === null && role.value === null && plan.value === null && linkable === null) {
      throw notAdmitted(settings, whyNot(identity, role, plan));
    }
    const person = known ?? (await store.addPerson(newPerson(identity, this.#nowMs())));
    if (person.suspendedMs !== null) throw notAdmitted(settings, "an operator has suspended the person");
    const now = await this.#record(person, identity, { role, plan }, settings);
    if (listener === "operator") {
      if (roleNow(now, settings, this.#nowMs()) === null)
        throw notAdmitted(settings, whyNot(identity, role, plan));
      await this.#follow(now, plan);
      return now;
    }
    if (now.account === null) return await this.#withAccount(now, { plan, linkable, settings, identity });
    await this.#follow(now, plan);
    return now;
  }

  /** Records what the issuer says about an operator now. Returns the person as they are now. */
  async recordCheck(person: PersonRow, identity: Identity, settings: SignInSettings): Promise<PersonRow> {
    const verdicts = { role: roleRuleOf(identity, settings), plan: planOf(identity, settings) };
    const now = await this.#record(person, identity, verdicts, settings);
    await this.#follow(now, verdicts.plan);
    return now;
  }

  /** Suspends the accounts of people whom no rule has matched for long. Returns how many. */
  async lapse({ lapse }: SignInSettings, isStopped: () => boolean): Promise<number> {
    const { store, logger } = this.#deps;
    let count = 0;
    for (;;) {
      const people = await store.peopleToLapse(matchedBefore(lapse, this.#nowMs()), lapsingAtOnce);
      for (const person of people) {
        if (isStopped()) return count;
        // Somebody may have signed in since the list was read.
        const now = await store.person(person.id);
        if (now?.accountMatchedMs !== person.accountMatchedMs) continue;
        await this.#suspend(person);
        count += 1;
        logger.info(
          { person: person.id, account: person.account },
          "an account is suspended: no rule has matched its person for long",
        );
      }
      if (people.length < lapsingAtOnce) return count;
    }
  }

  /** Finds the person, who may have come from the issuer before. */
  async #known(identity: Identity, { formerly }: SignInSettings): Promise<PersonRow | null> {
    const { store, logger } = this.#deps;
    const { issuer, sub, email, emailVerified } = identity;
    const known = await store.personOf(issuer, sub);
    if (known !== null || formerly === null || email === null || !emailVerified) return known;
    const spellings = [formerly, formerly.replace(/\/$/, ""), `${formerly.replace(/\/$/, "")}/`];
    for (const former of new Set(spellings)) {
      const [person, ...others] = await store.peopleWithEmail(former, email);
      if (person === undefined) continue;
      if (others.length > 0) {
        logger.warn({ former }, "a person was not moved from the issuer before: two have the same address");
        return null;
      }
      const change = moveChange(person.id, former, issuer, this.#change());
      if (await store.movePerson(person.id, former, { issuer, sub }, change)) {
        logger.info({ person: person.id, former }, "a person has moved from the issuer before");
      }
      return await store.personOf(issuer, sub);
    }
    return null;
  }

  /**
   * Replaces what is known about a person, and returns the person as they are now. A rule that
   * could not be decided, because the issuer has left the groups out, changes nothing and renews
   * nothing. If another sign-in records something at the same time, it decides again.
   */
  async #record(
    read: PersonRow,
    identity: Identity,
    { role, plan }: { role: Verdict<RoleRule>; plan: Verdict<string> },
    settings: SignInSettings,
  ): Promise<PersonRow> {
    const { store, logger, tell } = this.#deps;
    const { id } = read;
    const { name, email, emailVerified } = identity;
    if (!(role.isComplete && plan.isComplete)) {
      logger.warn({ person: id }, `${noGroups(identity)}; rules about groups are skipped`);
    }
    for (let person = read; ; ) {
      const nowMs = this.#nowMs();
      const held = ruleBy(person.roleRule, settings);
      const given = role.value;
      const keepsRole = !role.isComplete && held !== null && isHigherRole(held.role, given?.role ?? null);
      const rule = keepsRole ? held : given;
      const facts: PersonFacts = {
        name,
        email,
        emailVerified,
        seenMs: nowMs,
        roleRule: rule && recordOf(rule),
        roleMatchedMs: keepsRole || given === null ? person.roleMatchedMs : nowMs,
        accountMatchedMs: plan.value === null ? person.accountMatchedMs : nowMs,
      };
      const before = roleBefore(person, settings, nowMs);
      const now = roleNow({ ...person, ...facts }, settings, nowMs);
      const change = now === before ? null : roleChange(person, before, now, this.#change());
      if (await store.setPersonFacts(person, facts, change)) {
        if (change !== null) logger.info({ person: id, before, role: now }, "a role has changed");
        if (change !== null && now !== null)
          await tell?.("operator.role_given", { person: `person:${id}`, role: now }, `${id}:${nowMs}`);
        return { ...person, ...facts };
      }
      person = await this.#again(person, settings);
    }
  }

  /** Reads a person again, who may have been erased. */
  async #again({ id }: PersonRow, settings: SignInSettings): Promise<PersonRow> {
    const now = await this.#deps.store.person(id);
    if (now === null || now.erasedMs !== null) throw notAdmitted(settings, wasErased);
    return now;
  }

  /** Finds the account that a confirmed address links to a person who has none. */
  async #linkable({ email, emailVerified }: Identity, known: PersonRow | null): Promise<string | null> {
    const { store } = this.#deps;
    if (known?.account != null || email === null || !emailVerified) return null;
    const [account, ...others] = await store.openAccountsWithEmail(email);
    // Generated names have a person, or will have the one who is signing in.
    if (account === undefined || others.length > 0 || generatedName.test(account)) return null;
    return (await store.listPeople({ account, limit: 1 })).length === 0 ? account : null;
  }

  /** Gives a person an account: of a broken-off sign-in, one that exists, or a new one. */
  async #withAccount(
    person: PersonRow,
    { plan, linkable, settings, identity }: Admission,
  ): Promise<PersonRow> {
    const { store, logger } = this.#deps;
    const own = accountOfPerson(person);
    const isBegun = (await store.accountSnapshot(own)) !== null;
    if (!isBegun && linkable !== null) {
      const link = { account: linkable, by: "email", isFirst: true };
      if (await store.linkPerson(person.id, link, linkChange(person.id, linkable, this.#change()))) {
        logger.info({ person: person.id, account: linkable }, "an account is linked by its e-mail address");
        const linked = { ...person, account: linkable, accountBy: "email" };
        await this.#follow(linked, plan);
        return linked;
      }
      // Another sign-in of the same person may have been faster.
      const now = await this.#again(person, settings);
      if (now.account !== null) {
        await this.#follow(now, plan);
        return now;
      }
    }
    if (!isBegun) {
      if (plan.value === null) throw notAdmitted(settings, whyNot(identity, plan));
      await this.#open(own, plan.value, identity);
    }
    const link = { account: own, by: "rule", isFirst: true };
    await store.linkPerson(person.id, link, linkChange(person.id, own, this.#change()));
    // Another sign-in of the same person may have been faster.
    const now = await store.person(person.id);
    if (now !== null && now.erasedMs !== null) {
      // The account was opened since, with name and address.
      await store.erasePerson(person.id, this.#nowMs(), eraseChange(person.id, this.#change()));
      throw notAdmitted(settings, wasErased);
    }
    invariant(now !== null && now.account !== null, "a person without an account was given one");
    logger.info({ person: person.id, account: now.account }, "an account is opened by a rule");
    return now;
  }

  async #open(account: string, plan: string, { name, email, emailVerified }: Identity): Promise<void> {
    // An address that the issuer has not confirmed could be that of somebody else.
    const contact = { owner: name, email: emailVerified ? email : null };
    const options = { by: byRules, dryRun: false };
    const { kind } = await this.#deps.store.putAccount({ id: account, plan, contact }, options);
    if (kind === "opened" || kind === "exists") return;
    throw new Refusal(
      "not_admitted",
      "Your account cannot be opened now. Ask the operator of this service.",
      { detail: `the plan ${plan} of the rule is not among the current plans` },
    );
  }

  /** Makes the account of a person what the rules say, as far as rules may change it. */
  async #follow(person: PersonRow, plan: Verdict<string>): Promise<void> {
    if (person.account === null) return;
    if (plan.value !== null) {
      const account = (await this.#deps.store.accountSnapshot(person.account))?.account;
      // A suspension is not recorded if the process died before.
      if (person.lapsedMs !== null || account?.state === "suspended") await this.#resume(person);
      if (plan.isComplete && account !== undefined) await this.#changePlan(account, plan.value);
    } else if (plan.isComplete && person.accountBy === "rule" && person.lapsedMs === null) {
      await this.#suspend(person);
      this.#deps.logger.info(
        { person: person.id, account: person.account },
        "an account is suspended: no rule matches its person",
      );
    }
  }

  async #suspend({ id, account, accountMatchedMs }: PersonRow): Promise<void> {
    if (account === null) return;
    // An account that an operator has suspended stays as it is.
    const snapshot = await this.#deps.store.accountSnapshot(account);
    // Other nodes may do the same. It takes effect once after each matching sign-in.
    const op = `sign_in suspend ${id} ${accountMatchedMs}`;
    if (snapshot?.account.state === "active") await this.#setState(account, "suspend", op);
    await this.#deps.store.setPersonLapsed(id, this.#nowMs());
    // A sign-in that matched meanwhile found nothing to resume.
    const now = await this.#deps.store.person(id);
    if (now !== null && now.accountMatchedMs !== accountMatchedMs) await this.#resume(now);
  }

  /** Ends a suspension, unless an operator has suspended or resumed the account since. */
  async #resume({ id, account }: PersonRow): Promise<void> {
    if (account === null) return;
    const entries = await this.#lastEntries(account, ["suspend", "resume"], suspensionsRead);
    const resumed = entries.findIndex(({ kind }) => kind === "resume");
    const suspensions = resumed === -1 ? entries : entries.slice(0, resumed);
    // An operator's suspension may be the one before: a rule has read the account just before it.
    if (suspensions.length > 0 && suspensions.every(({ by }) => by === byRules)) {
      await this.#setState(account, "resume", newOperation());
      this.#deps.logger.info(
        { person: id, account },
        "an account is resumed: a rule matches its person again",
      );
    }
    await this.#deps.store.setPersonLapsed(id, null);
  }

  async #setState(account: string, kind: "suspend" | "resume", op: string): Promise<void> {
    const operation = { kind: "state", account, op, to: { kind }, by: byRules } as const;
    const outcome = await this.#deps.ledger.apply(operation);
    if (outcome.kind === "changed" || outcome.kind === "account_closed") return;
    throw refusalOf(outcome);
  }

  async #changePlan(
    { id: account, state, nextPlan, plan: present }: AccountRow,
    plan: string,
  ): Promise<void> {
    const { ledger, logger } = this.#deps;
    if (state === "closed" || (nextPlan ?? present) === plan) return;
    const [last] = await this.#lastEntries(account, ["open", "plan"], 1);
    if (last?.by !== byRules) return;
    for (const at of ["now", "refresh"] as const) {
      const operation = { kind: "plan", account, op: newOperation(), plan, at, by: byRules } as const;
      const outcome = await ledger.apply(operation);
      switch (outcome.kind) {
        case "changed":
          logger.info({ account, plan, at }, "a rule has changed a plan");
          return;
        case "window_differs":
          continue;
        case "account_closed":
          return;
        case "unknown_plan":
        case "retired_plan":
          logger.error({ account, plan }, "a rule names a plan that is not among the current plans");
          return;
        default:
          throw refusalOf(outcome);
      }
    }
  }

  #lastEntries(account: string, kinds: readonly JournalKind[], limit: number): Promise<ListedEntry[]> {
    return this.#deps.store.journal(account, { kinds, newestFirst: true, limit });
  }

  #change() {
    return { by: byRules, atMs: this.#deps.store.times().atMs };
  }

  #nowMs(): EpochMs {
    return this.#deps.store.times().nowMs;
  }
}

/** Returns the latest time whose period has ended. */
function matchedBefore(lapse: string, nowMs: EpochMs): EpochMs {
  // Months differ in length. A person lapses a day early or late, and not twice.
  return nowMs - (endOf(lapse, nowMs) - nowMs);
}

function whyNot(identity: Identity, ...verdicts: Verdict<unknown>[]): string {
  const isComplete = verdicts.every((verdict) => verdict.isComplete);
  return isComplete ? "no rule matches" : `${noGroups(identity)}, and no other rule matches`;
}

function noGroups({ hasTooManyGroups }: Identity): string {
  return hasTooManyGroups
    ? "the issuer has left out the groups because they are too many"
    : "the issuer has sent no groups";
}

function newOperation(): string {
  return `sign_in ${randomBytes(12).toString("hex")}`;
}
