/**
 * The people behind a front end of a simulated world: who asks, what operators do to these people,
 * and which account must pay. It learns the account of a person from the first charge, and does
 * not read the rows of people that the service keeps.
 *
 * Guarantees: one person has one account, and nobody else has it. An erased person gets another
 * one. Suspended and unknown people are refused as documented, and only they are.
 */
import assert from "node:assert/strict";
import { issuerOfFrontEnd } from "../../src/actors.ts";
import { accountOfPerson, type PersonRow } from "../../src/store/people.ts";
import { pageRowsMax } from "../../src/store/store.ts";
import { day } from "../fixtures/times.ts";
import type { SimulatedDatabase } from "./database.ts";
import type { Answered } from "./http-client.ts";
import type { Random } from "./random.ts";

const name = "webui";
const header = "x-person";

/** Each person has a normal form, and other spellings of it. */
const pool = [
  ["ada"],
  ["user-17", "USER-17"],
  ["bert@x.example", "Bert@X.example"],
  ["4711"],
  ["zoë", "ZOË", "Zoe\u0308"],
  ["åsa", "A\u030asa", "\u212bsa"],
  ["李雷"],
  ["p-0720f5393168bf68"],
];

interface Person {
  /** Times that the person was erased. */
  life: number;
  /** An erase was sent and has no answer yet. */
  isErasing: boolean;
  /** By life: the account that pays, as far as it is known. */
  accounts: string[];
  /** Accounts that an operator wanted to link. */
  links: Set<string>;
  /** Null: a change has no answer yet. */
  isSuspended: boolean | null;
  /** Changes of operators so far. */
  changes: number;
}

/** A request for a person, as of when it was sent. */
interface Asked {
  /** Null: the request names nobody. */
  person: Person | null;
  isOpening: boolean;
  /** Nobody else has the name. */
  isGuest: boolean;
  life: number;
  account: string | undefined;
  isSuspended: boolean | null;
  changes: number;
}

export interface FrontEndRequest {
  secret: string;
  /** The lines of the request that name the person. */
  headers: Record<string, string>;
  /** The account that pays, for fair slots. */
  payer: string;
  /** Checks the answer. `payers`: the accounts with a hold or a charge of the request. */
  answered(answer: Answered | null, payers: readonly string[]): void;
}

/** A key as operators ask for it. */
interface DrawnKey {
  acts_for: { name: string; header: string; plan?: string; new_accounts_per_day?: number };
  spending_caps?: { credits: number; every: string }[];
  requests_per_minute?: number;
  concurrent?: number;
}

type Store = SimulatedDatabase["store"];
interface ChangeOptions {
  insist: Insist;
  /** An account of somebody else. */
  linkable: string;
}
type Insist = (method: string, path: string, body: object) => Promise<Answered | null>;

export class FrontEnd {
  /** The keys to be made. One may refuse the people that it does not know. */
  readonly drawn: readonly DrawnKey[];
  readonly keys: { secret: string; isOpening: boolean }[] = [];
  readonly #newPerDay: number;
  /** The plan "large" is retired now and then. */
  readonly #plan: string;
  readonly #people = new Map<string, Person>();
  /** Accounts that were opened for people. */
  readonly #owners = new Map<string, Person>();
  /** Ids of people whom an operator has added. They do not count in a day. */
  readonly #added = new Set<string>();
  #guests = 0;
  /** The spellings of the person who was changed last, who asks more often. */
  #changed: readonly string[] = [];

  constructor(random: Random) {
    this.#newPerDay = random.pick([2, 5, 1000]);
    const actsFor = { name, header };
    this.#plan = random.pick(["small", "small", "large"]);
    const opens = { plan: this.#plan, new_accounts_per_day: this.#newPerDay };
    const spending_caps = [{ credits: random.whole(5, 60), every: "PT1H" }];
    const limits: Omit<DrawnKey, "acts_for"> = random.pick([
      ...[
        {},
        { spending_caps },
        { spending_caps },
        { spending_caps, concurrent: 3 },
        { requests_per_minute: 20 },
      ],
    ]);
    const opening = { acts_for: { ...actsFor, ...opens }, ...limits };
    const refusing = { acts_for: actsFor };
    const drawn = { opens: [opening], both: [opening, refusing], refuses: [refusing] };
    this.drawn = drawn[random.weighted({ opens: 4, both: 4, refuses: 1 })];
    if (this.drawn[0] === refusing) this.#newPerDay = 0;
  }

  /** Draws a request: of somebody who is known or new, or of nobody. */
  ask(random: Random): FrontEndRequest {
    const { secret, isOpening } = random.pick(this.keys);
    const whose = random.weighted({ pool: 85, guest: 8, missing: 3, twice: 2, hidden: 2 });
    if (whose === "guest") this.#guests += 1;
    const often = random.chance(0.3) && this.#changed.length > 0 ? this.#changed : random.pick(pool);
    const spellings = whose === "guest" ? [`guest-${this.#guests}`] : often;
    const value = random.pick(spellings);
    const headers: Record<string, string> = whose === "missing" ? {} : { [header]: value };
    if (whose === "twice") headers["X-Person"] = value;
    if (whose === "hidden") headers[header] = `${value}\u200b`;
    const isNamed = whose === "pool" || whose === "guest";
    const person = isNamed ? this.#person(spellings[0] ?? "") : null;
    const { life = 0, isSuspended = null, changes = 0 } = person ?? {};
    const isGuest = whose === "guest";
    const asked = { person, isOpening, isGuest, life, account: person?.accounts[life], isSuspended, changes };
    return {
      secret,
      headers,
      payer: `${spellings[0]} ${life}`,
      answered: (answer, payers) => this.#answered(asked, answer, payers),
    };
  }

  #person(normal: string): Person {
    const known = this.#people.get(normal);
    if (known !== undefined) return known;
    const person: Person = {
      life: 0,
      isErasing: false,
      accounts: [],
      links: new Set(),
      isSuspended: false,
      changes: 0,
    };
    this.#people.set(normal, person);
    return person;
  }

  #answered(asked: Asked, answer: Answered | null, payers: readonly string[]): void {
    const { person, isOpening, isGuest, account, isSuspended, changes } = asked;
    const body = answer?.body ?? "";
    const isMissing = body.includes('"missing_person"');
    if (person === null) {
      assert.notEqual(answer?.status, 200, "a request that names nobody is refused");
      assert.deepEqual(payers, [], "nobody pays for a request that names nobody");
      return;
    }
    assert.ok(!isMissing, `a request that names a person is answered: ${body}`);
    if (isGuest && !isOpening) {
      assert.notEqual(answer?.status, 200, "somebody unknown is refused");
      assert.deepEqual(payers, [], "nobody pays for somebody unknown");
    }
    for (const payer of payers) this.#paid(asked, person, payer);
    if (person.isErasing || person.changes !== changes) return;
    if (isSuspended === true) assert.notEqual(answer?.status, 200, "a suspended person is refused");
    if (isSuspended === false) assert.ok(!body.includes("suspended this person"), `nobody did this: ${body}`);
    const isStranger = body.includes('"unknown_person"') || /has opened \d+ accounts today/.test(body);
    if (isStranger) assert.equal(account, undefined, `somebody with an account is answered: ${body}`);
    const isRefusing = !isOpening || this.#plan === "large";
    if (!isRefusing) assert.ok(!body.includes('"unknown_person"'), "this key opens accounts");
  }

  /** The account is that of the person, in a life between the question and now. */
  #paid({ life }: Asked, person: Person, account: string): void {
    const last = person.life + (person.isErasing ? 1 : 0);
    for (let n = life; n <= last; n += 1) {
      if (person.accounts[n] === account) return;
      if (person.accounts[n] !== undefined) continue;
      if (!person.links.has(account)) {
        assert.ok(account.startsWith("p-"), `${account} was not opened for a person`);
        assert.equal(this.#owners.get(account), undefined, `${account} is that of another person`);
        this.#owners.set(account, person);
      }
      person.accounts[n] = account;
      return;
    }
    assert.fail(`${account} pays for a person who has ${person.accounts.slice(life, last + 1)}`);
  }

  /** Accounts of people, for other changes of operators. */
  get accounts(): string[] {
    return [...this.#owners.keys()];
  }

  /**
   * An operator changes a person. Returns what was done.
   */
  async change(random: Random, store: Store, { insist, linkable }: ChangeOptions): Promise<string> {
    if (random.chance(0.2))
      return (await this.#add(random, store, { insist, linkable })) ? "added" : "not added";
    const rows = await peopleIn(store);
    const present = rows.filter(({ erasedMs }) => erasedMs === null);
    const unlinked = present.filter(({ account }) => account === null);
    const choice = [unlinked, random.chance(0.1) ? rows : present].find(({ length }) => length > 0);
    if (choice === undefined) return "nobody";
    const row = random.pick(choice);
    const path = `/admin/people/${row.id}`;
    const erase = async () => this.#isDone(await insist("DELETE", `${path}/data`, {}));
    if (row.erasedMs !== null) {
      await erase();
      return "erased again";
    }
    const person = this.#person(row.sub);
    this.#changed = pool.find(([normal]) => normal === row.sub) ?? [row.sub];
    const isSuspended = row.suspendedMs !== null;
    const states = isSuspended ? { suspended: 1, active: 5 } : { suspended: 4, active: 1 };
    const action = random.weighted({ ...states, erased: 3, linked: 2 });
    if (action === "erased") return (await this.#erase(person, erase)) ? action : "not erased";
    if (action === "linked") return (await this.#link(person, row, linkable, insist)) ? action : "not linked";
    person.changes += 1;
    person.isSuspended = null;
    if (this.#isDone(await insist("POST", `${path}/state`, { state: action })))
      person.isSuspended = action === "suspended";
    person.changes += 1;
    return action;
  }

  /** Only of people whose account is known, so that their next account must be another one. */
  async #erase(person: Person, erase: () => Promise<boolean>): Promise<boolean> {
    if (person.accounts[person.life] === undefined || person.isErasing) return false;
    person.isErasing = true;
    person.changes += 1;
    if (!(await erase())) return false;
    Object.assign(person, { life: person.life + 1, isErasing: false, isSuspended: false });
    person.links.clear();
    person.changes += 1;
    return true;
  }

  /** Somebody gets an account before the first request, or has one already. */
  async #add(random: Random, store: Store, { insist, linkable }: ChangeOptions): Promise<boolean> {
    const spellings = random.pick(pool);
    const [normal = ""] = spellings;
    const person = this.#person(normal);
    if (person.isErasing) return false;
    this.#changed = spellings;
    const find = () => store.personOf(issuerOfFrontEnd(name), normal);
    const isKnown = (await find()) !== null;
    const body = { front_end: name, value: random.pick(spellings).normalize("NFC"), account: linkable };
    const isAdded = await this.#linked(person, linkable, () => insist("POST", "/admin/people", body));
    const { id } = (await find()) ?? {};
    if (!isKnown && id !== undefined) this.#added.add(id);
    return isAdded;
  }

  async #link(person: Person, { id }: PersonRow, account: string, insist: Insist): Promise<boolean> {
    return await this.#linked(person, account, () =>
      insist("POST", `/admin/people/${id}/account`, { account }),
    );
  }

  /** A link succeeds if the person has no other account. */
  async #linked(person: Person, account: string, link: () => Promise<Answered | null>): Promise<boolean> {
    person.links.add(account);
    const answer = await link();
    if (answer === null) return false;
    assert.ok(answer.status === 200 || answer.status === 409, `a link is answered: ${answer.body}`);
    const isLinked = answer.status === 200;
    const known = person.accounts[person.life];
    if (known !== undefined) assert.equal(isLinked, known === account, "a link is final");
    if (isLinked) person.accounts[person.life] = account;
    else person.links.delete(account);
    return isLinked;
  }

  /** Returns false if no answer came. */
  #isDone(answer: Answered | null): boolean {
    if (answer === null) return false;
    assert.equal(answer.status, 200, `a change of a person is answered: ${answer.body}`);
    return true;
  }

  /** `isClockRight`: a day of the ledger is a day of the rows. */
  async checkOpened({ store, ledger }: SimulatedDatabase, isClockRight: boolean): Promise<void> {
    const rows = await peopleIn(store);
    const own = new Set(rows.map(accountOfPerson));
    const others = [...ledger.accounts.keys()].filter((id) => id.startsWith("p-") && !own.has(id));
    assert.deepEqual(others, [], "each account of the front end was opened for a person");
    if (!isClockRight) return;
    const counted = rows.filter(({ id }) => !this.#added.has(id));
    const days = Map.groupBy(counted, ({ createdMs }) => Math.floor(createdMs / day));
    const most = Math.max(0, ...[...days.values()].map(({ length }) => length));
    assert.ok(most <= this.#newPerDay, `${most} people got accounts in a day, and not ${this.#newPerDay}`);
  }
}

async function peopleIn(store: Store): Promise<PersonRow[]> {
  const rows = await store.listPeople({ limit: pageRowsMax });
  assert.ok(rows.length < pageRowsMax, "all people are in one page");
  return rows.filter(({ issuer }) => issuer === issuerOfFrontEnd(name));
}
