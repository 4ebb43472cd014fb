/**
 * The picture of the grants: for each bucket and each additional grant, what is left, held and
 * spent at each quarter of an hour.
 */
import { inSpendingOrder } from "../../src/ledger/grants.ts";
import type { Taking } from "../../src/ledger/rows.ts";
import { type MicroCredits, microPerCredit } from "../../src/units.ts";
import { quartersMax } from "./history.ts";
import type { Played, Sample } from "./play.ts";
import { msAt, quarterAt } from "./world.ts";

/** A grant of the bucket of a strip, at some quarters. In micro-credits. */
export interface Level {
  from: number;
  /** The first quarter after it. */
  until: number;
  seq: number;
  leftMicro: MicroCredits;
  heldMicro: MicroCredits;
  spentMicro: MicroCredits;
  amountMicro: MicroCredits;
  /** The parts of `heldMicro` and `spentMicro` that are of the selected request. */
  ownHeldMicro: MicroCredits;
  ownSpentMicro: MicroCredits;
}

export interface Strip {
  name: string;
  kind: "base" | "overage" | "promotion" | "payment";
  levels: readonly Level[];
  /** In credits. */
  height: number;
}

interface OpenGrant {
  seq: number;
  amountMicro: MicroCredits;
  spentMicro: MicroCredits;
  heldMicro: MicroCredits;
}

const empty = { amountMicro: 0, spentMicro: 0, heldMicro: 0 };

/** `request`: the id of the selected request, whose credits are shown apart. */
export function stripsOf(played: Played, request: string | null): Strip[] {
  const strip = (name: string, kind: Strip["kind"], grantIn: (sample: Sample) => OpenGrant | null): Strip => {
    const levels = levelsOf(played, request, grantIn);
    const most = Math.max(
      0,
      ...levels.map((each) => Math.max(each.amountMicro, each.spentMicro + each.heldMicro)),
    );
    return { name, kind, levels, height: most / microPerCredit };
  };
  const additional = played.grants
    .filter(({ bucket }) => bucket === "additional")
    .map(({ seq, untilMs, payment }) => ({ ...empty, seq, untilMs, isPayment: payment !== null }))
    .toSorted(inSpendingOrder);
  return [
    strip("Base", "base", ({ account }) => account.base),
    strip("Overage", "overage", ({ account }) => account.overage),
    ...additional.map(({ seq, isPayment }) => {
      const kind = isPayment ? "payment" : "promotion";
      return strip(
        grantName(played, seq),
        kind,
        (sample) => sample.additional.find((grant) => grant.seq === seq) ?? null,
      );
    }),
  ];
}

/** Returns the name of an additional grant: that of the event that gave it. */
export function grantName({ commits }: Played, seq: number): string {
  const cause = commits.find(({ journal }) => journal.some((row) => row.seq === seq))?.event ?? "";
  const [kind = "", number = ""] = cause.split("-");
  return `${kind.charAt(0).toUpperCase()}${kind.slice(1)} ${number}`;
}

function levelsOf(
  { samples, charges }: Played,
  request: string | null,
  grantIn: (sample: Sample) => OpenGrant | null,
): Level[] {
  const levels: Level[] = [];
  const own = charges.filter(({ id }) => id === request);
  for (const [at, sample] of samples.slice(0, quartersMax).entries()) {
    const grant = grantIn(sample);
    if (grant === null) continue;
    const { seq, amountMicro, spentMicro, heldMicro } = grant;
    const hold = sample.holds.find(({ id }) => id === request);
    const paid = own.filter(({ atMs }) => atMs <= msAt(at)).flatMap((charge) => charge.paid);
    const level: Level = {
      ...{ from: at, until: at + 1, seq, amountMicro, spentMicro, heldMicro },
      leftMicro: Math.max(0, amountMicro - spentMicro - heldMicro),
      ownHeldMicro: takenOf(hold?.takings ?? [], seq),
      ownSpentMicro: takenOf(paid, seq),
    };
    const last = levels.at(-1);
    if (last !== undefined && isSame(last, level)) last.until = level.until;
    else levels.push(level);
  }
  return levels;
}

function takenOf(takings: readonly Taking[], seq: number): MicroCredits {
  return takings.reduce((sum, { grant, amountMicro }) => sum + (grant === seq ? amountMicro : 0), 0);
}

function isSame(one: Level, { until: _, from, ...other }: Level): boolean {
  return (
    one.until === from &&
    one.seq === other.seq &&
    one.amountMicro === other.amountMicro &&
    one.spentMicro === other.spentMicro &&
    one.heldMicro === other.heldMicro &&
    one.ownHeldMicro === other.ownHeldMicro &&
    one.ownSpentMicro === other.ownSpentMicro
  );
}

/** A row of the list of grants at a time. */
export interface ListedGrant {
  name: string;
  kind: Strip["kind"];
  /** Null: no fact has been written for this window yet. */
  seq: number | null;
  from: number;
  until: number | null;
  amountMicro: MicroCredits;
  spentMicro: MicroCredits;
  heldMicro: MicroCredits;
}

/** Returns the open grants at a sample, in spending order. */
export function grantsAt(played: Played, { account, additional, seq: written }: Sample): ListedGrant[] {
  const windows = (["base", "overage"] as const).flatMap((kind): ListedGrant[] => {
    const grant = account[kind];
    if (grant === null) return [];
    const { seq, fromMs, untilMs, amountMicro, spentMicro, heldMicro } = grant;
    return [
      {
        ...{ name: kind === "base" ? "Base" : "Overage", kind, amountMicro, spentMicro, heldMicro },
        ...{ seq: seq > written ? null : seq, from: quarterAt(fromMs), until: quarterAt(untilMs) },
      },
    ];
  });
  return [
    ...windows,
    ...additional.map(
      ({ seq, amountMicro, spentMicro, heldMicro, untilMs, isPayment: isPaid }): ListedGrant => {
        const fromMs = played.grants.find((grant) => grant.seq === seq)?.fromMs ?? 0;
        return {
          ...{ name: grantName(played, seq), kind: isPaid ? "payment" : "promotion", seq },
          ...{ amountMicro, spentMicro, heldMicro },
          ...{ from: quarterAt(fromMs), until: untilMs === null ? null : quarterAt(untilMs) },
        };
      },
    ),
  ];
}

/** Returns what open holds have taken from grants that have closed. It lapses or is charged. */
export function heldOfClosed({ account, additional, holds }: Sample): MicroCredits {
  const open = new Set([account.base, account.overage, ...additional].map((grant) => grant?.seq));
  const closed = holds.flatMap(({ takings }) => takings).filter(({ grant }) => !open.has(grant));
  return closed.reduce((sum, { amountMicro }) => sum + amountMicro, 0);
}
