/**
 * Computes an account again from its facts, and compares it with its row, its holds and its keys.
 *
 * The fold decides nothing: it adds up what was recorded, and checks that each fact follows from
 * what it names: a grant from its plan version, a charge from its tokens and prices. Pure.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import { microOf } from "../units.ts";
import { chargeCaps } from "./caps.ts";
import { type FactFields, factFields, factText } from "./fact-values.ts";
import { byBucket, freeOf, inSpendingOrder, sumOf } from "./grants.ts";
import { applyKeyFact } from "./key-facts.ts";
import { counterFaults, keyFaults, runningFault } from "./key-problems.ts";
import { type PlanCatalog, planCapsOf, ruleOf, versionOf } from "./plan.ts";
import {
  type AccountRow,
  type AccountState,
  type AdditionalGrant,
  type ChargeRow,
  type GrantRow,
  type HoldRow,
  type JournalRow,
  type KeyRow,
  type Taking,
  type WindowBucket,
  type WindowGrant,
  windowBuckets,
} from "./rows.ts";
import { isOfRule, type WindowRule } from "./windows.ts";

/** What the audit checks of each account. docs/ledger.md lists the sentences. */
export const foldedInvariants = {
  numbers: "the facts of an account are numbered without gaps, and their times do not go back",
  journal: "each entry of the journal follows from those before it",
  grants: "each grant follows from its cause: a plan version, a payment, an operation",
  windows: "windows of a bucket do not overlap, and end as their plan version says",
  charges: "a charge is tokens x prices, and what its grants paid and its shortfall add up to it",
  account: "the row of an account is what its facts add up to",
  additional: "the open additional grants of an account are what its facts add up to",
  holds: "holds take from grants of their account, and accounts and keys have what their holds have",
  keys: "the row of a key is what its facts add up to",
} as const;

export type FoldedInvariant = keyof typeof foldedInvariants;

/** Reports a fault. `row` names the place, with what was found and what it should be. */
type Report = (invariant: FoldedInvariant, row: Record<string, string | number | null>) => void;

/** An entry, with the beginning of its grant if it begins one. */
interface EntryFact {
  entry: JournalRow;
  grant: GrantRow | null;
}

/** A grant as its facts add up. */
interface FoldedGrant extends Omit<GrantRow, "account" | "seq"> {
  seq: number;
  /** The most that its amount has been: a change can lower it below what was spent. */
  mostMicro: MicroCredits;
}

/** The rows that the facts are compared with. */
interface PresentRows {
  account: AccountRow;
  later: readonly AdditionalGrant[];
  holds: readonly HoldRow[];
  keys: readonly KeyRow[];
}

interface FoldOptions {
  plans: PlanCatalog;
  /** The keys of front ends, which act for any account. */
  frontEndKeys: ReadonlySet<string>;
  report: Report;
}

export class AccountFold {
  readonly #account: string;
  readonly #plans: PlanCatalog;
  readonly #frontEndKeys: ReadonlySet<string>;
  readonly #report: Report;
  readonly #grants = new Map<number, FoldedGrant>();
  readonly #keys = new Map<string, KeyRow>();
  #seq = 0;
  #atMs = Number.NEGATIVE_INFINITY;
  #plan: string | null = null;
  #nextPlan: string | null = null;
  readonly #capped: Pick<AccountRow, "counters" | "planSinceMs"> = { counters: [], planSinceMs: 0 };
  #state: AccountState = "active";
  #endsMs: EpochMs | null = null;
  #createdMs: EpochMs = 0;
  readonly #open: Record<WindowBucket, FoldedGrant | null> = { base: null, overage: null };

  constructor(account: string, { plans, frontEndKeys, report }: FoldOptions) {
    this.#account = account;
    this.#plans = plans;
    this.#frontEndKeys = frontEndKeys;
    this.#report = report;
  }

  #wrong(invariant: FoldedInvariant, seq: number, problem: string): void {
    this.#report(invariant, { account: this.#account, seq, problem });
  }

  #number(seq: number, atMs: EpochMs): void {
    if (seq !== this.#seq + 1) this.#wrong("numbers", seq, `follows number ${this.#seq}`);
    if (atMs < this.#atMs) this.#wrong("numbers", seq, "is earlier than the fact before");
    this.#seq = seq;
    this.#atMs = Math.max(this.#atMs, atMs);
  }

  /** An entry whose values cannot be read is reported, and the fold goes on. */
  add(fact: EntryFact): void {
    try {
      this.#add(fact);
    } catch (error) {
      if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
      this.#wrong("journal", fact.entry.seq, "has values that cannot be read");
    }
  }

  #add({ entry, grant }: EntryFact): void {
    const { seq, kind, atMs } = entry;
    this.#number(seq, atMs);
    const wrong = (problem: string) => this.#wrong("journal", seq, problem);
    if (entry.by === "") wrong("names nobody");
    if ((seq === 1) !== (kind === "open")) wrong("an account begins with its opening, and has one");
    if (this.#state === "closed" && !["refund", "adjust", "key"].includes(kind))
      wrong("the account was closed");
    const begins = beginning.has(kind) && !(kind === "promotion" && entry.grantSeq !== null);
    if (begins !== (grant !== null)) wrong(begins ? "has no grant" : "has a grant that it does not begin");
    const after = factFields(entry.after);
    const replaced = this.#replaced(entry, after);
    if (kind !== "key" && entry.before !== replaced) wrong("says that something else was there before");
    if (kind !== "key" && entry.outcome !== null) wrong("has an outcome");
    switch (kind) {
      case "open":
        this.#plan = after.plan ?? null;
        this.#capped.planSinceMs = atMs;
        this.#createdMs = atMs;
        return;
      case "window":
        if (grant !== null) this.#beginWindow(entry, grant, after);
        return;
      case "payment":
      case "promotion":
      case "memo":
        if (grant !== null) this.#beginAdditional(entry, grant);
        else this.#change(entry, after);
        return;
      case "change":
      case "adjust":
      case "refund":
        this.#change(entry, after);
        return;
      case "plan":
        this.#changePlan(after, atMs);
        return;
      case "suspend":
      case "resume":
        this.#state = kind === "suspend" ? "suspended" : "active";
        return;
      case "end":
        this.#endsMs = after.endsMs ?? null;
        return;
      case "close":
        this.#state = "closed";
        this.#nextPlan = null;
        this.#open.base = null;
        this.#open.overage = null;
        return;
      case "key": {
        const problem = applyKeyFact(this.#keys, entry, after);
        if (problem !== null) this.#wrong("keys", seq, problem);
        return;
      }
    }
  }

  /** The values that an entry about the account should have as those before. */
  #replaced({ kind }: JournalRow, { endsMs }: FactFields): string | null {
    switch (kind) {
      case "plan":
        return factText({ plan: this.#plan, nextPlan: this.#nextPlan });
      case "suspend":
      case "resume":
      case "end":
      case "close":
        return endsMs === undefined ? factText({ state: this.#state }) : factText({ endsMs: this.#endsMs });
      default:
        return null;
    }
  }

  #changePlan({ plan = "", at }: FactFields, atMs: EpochMs): void {
    if (!this.#plans.versions.has(plan) && !this.#plans.damaged.has(plan)) {
      this.#wrong("journal", this.#seq, `there is no plan "${plan}"`);
    }
    if (at === "refresh") {
      this.#nextPlan = plan === this.#plan ? null : plan;
      return;
    }
    // Time brings a scheduled plan at the end of the base window.
    if (plan !== this.#plan)
      this.#capped.planSinceMs = at === undefined ? (this.#open.base?.untilMs ?? atMs) : atMs;
    this.#plan = plan;
    this.#nextPlan = null;
  }

  #beginWindow(entry: JournalRow, grant: GrantRow, after: FactFields): void {
    const { seq, bucket } = grant;
    const wrong = (problem: string) => this.#wrong("grants", seq, problem);
    if (bucket === "additional") {
      wrong("is a window of the additional bucket");
      return;
    }
    if (bucket !== entry.bucket || grant.amountMicro !== entry.amountMicro) wrong("differs from its entry");
    if (grant.payment !== null || grant.requestId !== null)
      wrong("is a window, and names a payment or a request");
    if (grant.plan !== this.#plan) wrong(`is of the plan ${grant.plan}, and the account is on ${this.#plan}`);
    const before = this.#open[bucket];
    if (after.plan !== grant.plan) wrong(`is of the plan ${grant.plan}, and its entry says ${after.plan}`);
    this.#open[bucket] = { ...grant, mostMicro: grant.amountMicro };
    this.#grants.set(seq, this.#open[bucket]);
    if (this.#plans.damaged.has(grant.plan ?? "")) return;
    const version = versionOf(this.#plans, grant.plan ?? "", grant.version ?? 0);
    if (version === undefined) {
      wrong(`there is no version ${grant.version} of the plan ${grant.plan}`);
      return;
    }
    if (grant.amountMicro !== microOf(version[bucket].credits))
      wrong("has other credits than its plan version");
    this.#checkWindow(ruleOf(version, bucket), grant, { before, atMs: entry.atMs });
  }

  #checkWindow(
    rule: WindowRule,
    { seq, fromMs, untilMs, anchorMs, spentMicro }: GrantRow,
    { before, atMs }: { before: FoldedGrant | null; atMs: EpochMs },
  ): void {
    const wrong = (problem: string) => this.#wrong("windows", seq, problem);
    if (untilMs === null || anchorMs === null) {
      wrong("has no end");
      return;
    }
    const window = { fromMs, untilMs, anchorMs };
    if (fromMs > atMs) wrong("begins after its entry");
    const isFirst = before === null;
    if (!isOfRule(rule, window, { isFirst })) wrong("ends at another time than its plan version says");
    if (isFirst && (fromMs !== atMs || atMs !== this.#createdMs))
      wrong("is the first one, and does not begin with the opening");
    const replaces = !isFirst && fromMs < (before.untilMs ?? Number.NEGATIVE_INFINITY);
    if (replaces && fromMs < before.fromMs) wrong("begins before the window that it replaces");
    const carriedMicro = replaces ? before.spentMicro : 0;
    if (spentMicro !== carriedMicro)
      wrong(`begins with ${spentMicro} spent, and the window before left ${carriedMicro}`);
  }

  #beginAdditional(entry: JournalRow, grant: GrantRow): void {
    const { seq, amountMicro, spentMicro, untilMs, payment, requestId } = grant;
    const wrong = (problem: string) => this.#wrong("grants", seq, problem);
    if (grant.bucket !== "additional" || entry.bucket !== "additional")
      wrong("is not of the additional bucket");
    if (amountMicro !== entry.amountMicro || amountMicro <= 0) wrong("differs from its entry");
    if (spentMicro !== 0) wrong("begins with credits spent");
    if (grant.fromMs !== entry.atMs) wrong("begins at another time than its entry");
    if ((payment !== null) !== (entry.kind === "payment")) wrong("is a payment without an id, or has one");
    if (payment !== null && (entry.op !== `payment:${payment}` || untilMs !== null))
      wrong("is another payment");
    if (entry.subject !== (payment ?? requestId)) wrong("is about something else than its entry");
    if ((requestId !== null) !== (entry.kind === "memo")) wrong("is a memo without a request, or has one");
    if (grant.plan !== null || grant.version !== null || grant.anchorMs !== null) wrong("has a plan");
    this.#grants.set(seq, { ...grant, mostMicro: amountMicro });
  }

  /** A change of the amount of an open grant. */
  #change({ seq, kind, bucket, amountMicro, grantSeq }: JournalRow, { plan }: FactFields): void {
    const wrong = (problem: string) => this.#wrong("grants", seq, problem);
    const grant = this.#grants.get(grantSeq ?? 0);
    if (grant === undefined || grant.bucket !== bucket) {
      wrong(`changes a grant ${grantSeq} that is not there`);
      return;
    }
    if (amountMicro === null) {
      wrong("has no amount");
      return;
    }
    grant.amountMicro += amountMicro;
    grant.mostMicro = Math.max(grant.mostMicro, grant.amountMicro);
    const isPayment = grant.payment !== null;
    if (kind === "change") {
      if (grant.bucket !== "additional" && this.#open[grant.bucket] !== grant)
        wrong("changes a closed window");
      if (grant.bucket !== "additional" && !this.#isAmountOf(plan ?? "", grant.bucket, grant.amountMicro))
        wrong("is not to the credits of its plan");
      return;
    }
    if (grant.bucket !== "additional") {
      wrong("changes a window");
      return;
    }
    if (isPayment !== (kind === "refund"))
      wrong(isPayment ? "changes a payment" : "refunds what nobody has paid");
    if (kind === "promotion" ? amountMicro <= 0 : amountMicro > 0) wrong("has the wrong sign");
    if (grant.amountMicro < grant.spentMicro) wrong("takes credits that were spent");
  }

  #isAmountOf(plan: string, bucket: WindowBucket, amountMicro: MicroCredits): boolean {
    const versions = this.#plans.versions.get(plan);
    if (versions === undefined) return this.#plans.damaged.has(plan);
    return versions.some((version) => microOf(version[bucket].credits) === amountMicro);
  }

  charge(charge: ChargeRow): void {
    const { seq, paid, costMicro, shortfallMicro } = charge;
    this.#number(seq, charge.atMs);
    const wrong = (problem: string) => this.#wrong("charges", seq, problem);
    if (costOfCharge(charge) !== costMicro) wrong("its cost is not tokens x prices");
    const sums = byBucket(paid);
    for (const bucket of ["base", "overage", "additional"] as const)
      if (sums[bucket] !== charge[`${bucket}Micro` as const])
        wrong(`its grants paid another amount from ${bucket}`);
    if (sumOf(sums) + shortfallMicro !== costMicro || shortfallMicro < 0)
      wrong("what was paid and the shortfall are not the cost");
    for (const taking of paid) this.#spend(taking, seq);
    const { model, atMs, planVersion } = charge;
    const spent = { model, paidMicro: sumOf(sums), atMs };
    const plan = this.#plan ?? "";
    if (planVersion > (this.#plans.versions.get(plan)?.length ?? planVersion))
      wrong(`the plan ${plan} has no version ${planVersion}`);
    // A version from another node, or of a clock that was set back, can come after its time.
    chargeCaps(this.#capped, planCapsOf(this.#plans, plan, planVersion), spent);
    if (this.#frontEndKeys.has(charge.key)) return;
    const key = this.#keys.get(charge.key);
    if (key === undefined) wrong(`there is no key ${charge.key}`);
    else chargeCaps(key, key.caps, spent);
  }

  #spend({ grant: of, bucket, amountMicro }: Taking, seq: number): void {
    const grant = this.#grants.get(of);
    if (grant === undefined || grant.bucket !== bucket || amountMicro <= 0) {
      this.#wrong("charges", seq, `takes ${amountMicro} from a grant ${of} of ${bucket} that is not there`);
      return;
    }
    grant.spentMicro += amountMicro;
    if (grant.spentMicro > grant.mostMicro)
      this.#wrong("charges", seq, `takes more from grant ${of} than it had`);
  }

  /**
   * Compares the present rows with the facts, at the latest time that the ledger may have used.
   */
  finish({ account, later, holds, keys }: PresentRows, nowMs: EpochMs): void {
    const different = (field: string, found: string | number | null, expected: string | number | null) => {
      if (found !== expected) this.#report("account", { account: account.id, field, found, expected });
    };
    different("seq", account.seq, this.#seq);
    different("plan", account.plan, this.#plan);
    different("next_plan", account.nextPlan, this.#nextPlan);
    different("state", account.state, this.#state);
    different("ends_ms", account.endsMs, this.#endsMs);
    different("at_ms", account.atMs, this.#atMs);
    different("created_ms", account.createdMs, this.#createdMs);
    different("plan_since_ms", account.planSinceMs, this.#capped.planSinceMs);
    const running = runningFault(account, holds);
    if (running !== null) this.#report("account", { account: account.id, ...running });
    for (const fault of counterFaults(account, this.#capped))
      this.#report("account", { account: account.id, ...fault });
    const heldMicro = this.#heldByHolds(holds);
    for (const bucket of windowBuckets) this.#compareWindow(account[bucket], bucket, heldMicro);
    this.#compareAdditional(account, { later, heldMicro, nowMs });
    for (const key of keys) {
      const own = holds.filter((hold) => hold.key === key.id);
      const fault = key.actsFor === null ? runningFault(key, own) : null;
      if (fault !== null) this.#report("holds", { account: account.id, key: key.id, ...fault });
      for (const each of keyFaults(key, this.#keys.get(key.id))) this.#report("keys", each);
    }
    for (const id of this.#keys.keys())
      if (keys.every((key) => key.id !== id))
        this.#report("keys", { account: account.id, key: id, problem: "is gone" });
    const known = new Set(keys.map(({ id }) => id));
    for (const { id, key } of holds)
      if (!known.has(key) && !this.#frontEndKeys.has(key))
        this.#report("holds", { account: account.id, hold: id, problem: `there is no key ${key}` });
  }

  /** Credits that the open holds have taken from each grant. */
  #heldByHolds(holds: readonly HoldRow[]): Map<number, MicroCredits> {
    const heldMicro = new Map<number, MicroCredits>();
    for (const { id, takings } of holds) {
      for (const { grant: of, bucket, amountMicro } of takings) {
        const wrong = (problem: string) =>
          this.#report("holds", { account: this.#account, hold: id, grant: of, problem });
        const grant = this.#grants.get(of);
        if (grant === undefined || grant.bucket !== bucket || amountMicro <= 0) wrong("takes from no grant");
        else if (new Set(takings.map((taking) => taking.grant)).size !== takings.length)
          wrong("takes from it twice");
        heldMicro.set(of, (heldMicro.get(of) ?? 0) + amountMicro);
      }
    }
    return heldMicro;
  }

  #compareWindow(
    row: WindowGrant | null,
    bucket: WindowBucket,
    heldMicro: ReadonlyMap<number, MicroCredits>,
  ): void {
    const expected = this.#open[bucket];
    const found = row === null ? null : windowText(row, row.heldMicro);
    const wanted = expected === null ? null : windowText(expected, heldMicro.get(expected.seq) ?? 0);
    if (found !== wanted)
      this.#report("account", { account: this.#account, field: bucket, found, expected: wanted });
  }

  #compareAdditional(
    { additional, later: sums }: AccountRow,
    {
      later,
      heldMicro,
      nowMs,
    }: { later: readonly AdditionalGrant[]; heldMicro: ReadonlyMap<number, MicroCredits>; nowMs: EpochMs },
  ): void {
    const wrong = (seq: number, problem: string) => this.#wrong("additional", seq, problem);
    const rows = [...additional, ...later.toSorted(inSpendingOrder)];
    const listed = new Set(rows.map(({ seq }) => seq));
    if (listed.size < rows.length) wrong(0, "a grant is there twice");
    for (const [n, row] of rows.entries()) {
      const next = rows[n + 1];
      if (next !== undefined && inSpendingOrder(row, next) > 0) wrong(row.seq, "is not in spending order");
      const grant = this.#grants.get(row.seq);
      if (grant === undefined || grant.bucket !== "additional") {
        wrong(row.seq, "is no additional grant");
        continue;
      }
      const { amountMicro, spentMicro, untilMs, payment } = grant;
      const expected = additionalText(
        { amountMicro, spentMicro, untilMs },
        heldMicro.get(row.seq) ?? 0,
        payment !== null,
      );
      const found = additionalText(row, row.heldMicro, row.isPayment);
      if (found !== expected) wrong(row.seq, `is ${found}, and its facts say ${expected}`);
    }
    for (const grant of this.#grants.values()) {
      if (grant.bucket !== "additional" || listed.has(grant.seq)) continue;
      const isLeft = grant.amountMicro > grant.spentMicro || (heldMicro.get(grant.seq) ?? 0) > 0;
      // A promotion that has ended closes with the next commit, which may write no fact.
      const hasEnded = grant.untilMs !== null && grant.untilMs <= Math.max(this.#atMs, nowMs);
      if (isLeft && !hasEnded) wrong(grant.seq, "has credits left, and is not there");
    }
    const freeMicro = sum(later.map(freeOf));
    const untilMs = later.reduce((first, each) => Math.min(first, each.untilMs ?? Infinity), Infinity);
    const expected = [later.length, freeMicro, sum(later.map((each) => each.heldMicro)), untilMs].join(" ");
    const found = [sums.count, sums.freeMicro, sums.heldMicro, sums.untilMs ?? Infinity].join(" ");
    if (found !== expected) wrong(0, `the sums of later grants are ${found}, and they add up to ${expected}`);
  }
}

const beginning: ReadonlySet<string> = new Set(["window", "payment", "promotion", "memo"]);

type Amounts = Pick<GrantRow, "amountMicro" | "spentMicro" | "untilMs">;

function windowText(
  grant: Amounts & Pick<GrantRow, "seq" | "fromMs" | "anchorMs" | "plan" | "version">,
  heldMicro: MicroCredits,
): string {
  const { seq, amountMicro, spentMicro, fromMs, untilMs, anchorMs, plan, version } = grant;
  return `${seq}: ${spentMicro} spent and ${heldMicro} held of ${amountMicro}, ${fromMs} to ${untilMs} from ${anchorMs}, ${plan} ${version}`;
}

function additionalText(grant: Amounts, heldMicro: MicroCredits, isPayment: boolean): string {
  const { amountMicro, spentMicro, untilMs } = grant;
  return `${spentMicro} spent and ${heldMicro} held of ${amountMicro} until ${untilMs}${isPayment ? ", paid" : ""}`;
}

/** A late charge has differences, which can be negative. */
function costOfCharge(charge: ChargeRow): MicroCredits {
  const { promptTokens, cachedTokens, completionTokens } = charge;
  return (
    (promptTokens - cachedTokens) * charge.pricePrompt +
    cachedTokens * charge.priceCachedPrompt +
    completionTokens * charge.priceCompletion
  );
}

function sum(amounts: readonly MicroCredits[]): MicroCredits {
  return amounts.reduce((total, amount) => total + amount, 0);
}
