/**
 * People behind a front end: a program such as a chat page that has one key, and names in a header
 * the person for whom it sends a request.
 *
 * A person is known by the name of the front end and the value of the header, in NFC and in lower
 * case. The account of the person pays. Guarantees that nobody reaches an account by naming it: a
 * value that is not known gets an account of its own, or none. Operators read the names and
 * addresses of other headers.
 */
import { isUtf8 } from "node:buffer";
import { issuerOfFrontEnd, keyHolder } from "../actors.ts";
import { Refusal, StoreUnavailableError } from "../errors.ts";
import { refusalOf } from "../ledger/refusals.ts";
import { type ActsFor, isClosedAt } from "../ledger/rows.ts";
import {
  accountOfPerson,
  type FoundHolder,
  isErasedSub,
  newPerson,
  type PersonRow,
} from "../store/people.ts";
import { linkChange } from "../store/person-changes.ts";
import type { FoundKey, Store } from "../store/store.ts";
import { type Caller, keyCallerOf } from "./keys.ts";
import { headerValues, labelsIn, type PersonLabels } from "./person-labels.ts";
import { idProblem } from "./value-rules.ts";

/** Longer values are refused. */
const charactersMax = 255;
/** Programs that call a person by different names do not write the person with each request. */
const labelsEveryMs = 60_000;

interface FrontEndRequest {
  /** Names and values in turn, as Node has received them. */
  rawHeaders: readonly string[];
  /** Somebody has to pay: the request must name a person. */
  needsPerson: boolean;
}

/** A person as a request names them. */
interface NamedPerson extends PersonLabels {
  sub: string;
}

export class FrontEnds {
  readonly #store: Store;
  /** Chat pages send several requests at once for a new person: they share one opening. */
  readonly #opening = new Map<string, Promise<FoundHolder>>();

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Returns who pays for a request: the account of its key, or the person behind the front end of
   * the key. A front end that names no person has the account of its key.
   *
   * Throws the refusals `balance_unavailable`, `missing_person`, `unknown_person`,
   * `rate_limit_exceeded` and `account_suspended`.
   */
  async findCaller(found: FoundKey, { rawHeaders, needsPerson }: FrontEndRequest): Promise<Caller> {
    const { key, account } = found;
    const { actsFor } = key;
    if (actsFor === null) return keyCallerOf(found);
    const sub = personIn(rawHeaders, actsFor.header);
    if (sub === null) {
      if (!needsPerson) return keyCallerOf(found);
      throw missingPerson(`This key needs the header ${actsFor.header}, with the person who asks.`);
    }
    // The account of the person decides about itself when it pays.
    if (account.state !== "active" || isClosedAt(account, this.#store.times().atMs)) {
      throw new Refusal("account_suspended", "The account of this front end is suspended or closed.");
    }
    const labels = labelsIn(rawHeaders, actsFor);
    const known = await this.#store.findHolder(issuerOfFrontEnd(actsFor.name), sub);
    const holder = known ?? (await this.#openOnce(key.id, actsFor, { sub, ...labels }));
    const { person, plan, problem } = holder;
    if (person.suspendedMs !== null) {
      throw new Refusal("account_suspended", "The operator of this service has suspended this person.");
    }
    await this.#keepLabels(person, labels);
    return keyCallerOf({ key, plan, problem }, holder.account.id);
  }

  /** Writes the person if the front end calls them by another name than before. */
  async #keepLabels(person: PersonRow, labels: PersonLabels): Promise<void> {
    const { name, email } = { ...person, ...labels };
    const seenMs = this.#store.times().nowMs;
    if (name === person.name && email === person.email) return;
    if (seenMs - person.seenMs < labelsEveryMs) return;
    // If another request was faster, or the person is erased, the next request looks again.
    await this.#store.setPersonFacts(person, { ...person, name, email, seenMs }, null);
  }

  async #openOnce(keyId: string, actsFor: ActsFor, named: NamedPerson): Promise<FoundHolder> {
    const name = JSON.stringify([keyId, named.sub]);
    const underWay = this.#opening.get(name);
    if (underWay !== undefined) return await underWay;
    const opening = openForPerson(this.#store, { keyId, actsFor }, named);
    this.#opening.set(name, opening);
    try {
      return await opening;
    } finally {
      this.#opening.delete(name);
    }
  }
}

/** Returns the normal form of the header's value, or null if the request does not have it. */
function personIn(rawHeaders: readonly string[], name: string): string | null {
  const values = headerValues(rawHeaders, name);
  const [value, ...others] = values;
  if (value === undefined) return null;
  if (others.length > 0)
    throw missingPerson(`The header ${name} is there ${values.length} times. Send it once.`);
  const bytes = Buffer.from(value, "latin1");
  if (!isUtf8(bytes)) throw missingPerson(`The header ${name} is not encoded in UTF-8.`);
  const text = bytes.toString("utf8");
  const problem = personProblem(text);
  if (problem !== null) throw missingPerson(`The value of the header ${name} ${problem}.`);
  return normalPerson(text);
}

/** Returns the `sub` of the person whom a front end names so. */
export function normalPerson(text: string): string {
  return text.normalize("NFC").toLowerCase().normalize("NFC");
}

/** Describes why a text cannot name a person. Null: it can. */
export function personProblem(text: string): string | null {
  const normal = normalPerson(text);
  if (normal === "") return "is empty, and must name a person";
  if (normal.length > charactersMax) return `has more than ${charactersMax} characters`;
  // The Kelvin sign, for example, becomes a k.
  const isAnotherLetter = (character: string) => isAscii(normalPerson(character)) && !isAscii(character);
  if ([...text].some(isAnotherLetter)) return "has a character that becomes another letter";
  return isErasedSub(normal) ? "is reserved" : idProblem(normal);
}

function isAscii(text: string): boolean {
  return /^[\0-\x7f]*$/.test(text);
}

/**
 * Opens the account of a person, at most so many in a day. A request that breaks off in between is
 * completed by the next one, for the same person and the same account.
 */
async function openForPerson(
  store: Store,
  { keyId, actsFor }: { keyId: string; actsFor: ActsFor },
  { sub, ...labels }: NamedPerson,
): Promise<FoundHolder> {
  const { name, plan, newAccountsPerDay } = actsFor;
  if (plan === null || newAccountsPerDay === null) throw unknownPerson(name);
  const retired = `the plan ${plan} of the front end ${name} is not among the current plans`;
  // Before the day counts an account that cannot be opened.
  if (!(await store.plans()).offered.includes(plan)) throw unknownPerson(name, retired);
  const issuer = issuerOfFrontEnd(actsFor.name);
  const { by } = keyHolder(keyId);
  const { nowMs, atMs } = store.times();
  const known = await store.personOf(issuer, sub);
  if (known === null && !(await store.dailyCounts.count(issuer, 1, { most: newAccountsPerDay, atMs }))) {
    throw new Refusal(
      "rate_limit_exceeded",
      `The front end "${name}" has opened ${newAccountsPerDay} accounts today, which is its limit. Known people are served.`,
      { waitingHelps: false },
    );
  }
  const added = newPerson({ issuer, sub, ...labels }, nowMs);
  let person = known;
  if (person === null) {
    const uncount = async () => await store.dailyCounts.uncount(issuer, 1, atMs);
    try {
      person = await store.addPerson(added);
    } catch (error) {
      // Otherwise the person may have been added, and only the answer was lost.
      if (error instanceof StoreUnavailableError && !error.mayBeDone) await uncount();
      throw error;
    }
    // Another request of the same person was faster.
    if (person.id !== added.id) await uncount();
  }
  const account = accountOfPerson(person);
  if (person.account === null) {
    const options = { by, dryRun: false };
    const { kind } = await store.putAccount({ id: account, plan, contact: {} }, options);
    if (kind !== "opened" && kind !== "exists") throw unknownPerson(name, retired);
    const link = { account, by: "front_end", isFirst: true };
    await store.linkPerson(person.id, link, linkChange(person.id, account, { by, atMs }));
  }
  const holder = await store.findHolder(issuer, sub);
  if (holder === null)
    throw refusalOf({ kind: "balance_unavailable", account, problem: `person ${person.id} is not linked` });
  return holder;
}

/** `detail` is for the operator. */
function unknownPerson(name: string, detail?: string): Refusal {
  return new Refusal(
    "unknown_person",
    `The front end "${name}" knows no account for this person, and opens none. Ask the operator of this service.`,
    detail === undefined ? {} : { detail },
  );
}

function missingPerson(message: string): Refusal {
  return new Refusal("missing_person", message);
}
