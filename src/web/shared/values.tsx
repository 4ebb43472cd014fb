/** Small values: credits with all digits, times with the exact one in the title, states, ids. */
import type { ComponentChildren } from "preact";
import { exactCredits } from "../../units.ts";
import { alignedCredits, shortCredits } from "./numbers.ts";
import { exactTime, relativeTime } from "./times.ts";

/** An amount with its decimals below each other in a column. */
export function Amount({ micro }: { micro: number }) {
  const { digits, padding } = alignedCredits(micro);
  return (
    <span class="amount" title={`${digits} credits`}>
      {digits}
      <span class="padding" aria-hidden="true">
        {padding}
      </span>
    </span>
  );
}

/** An amount for a narrow place; rounded amounts are marked, and the title has all digits. */
export function ShortAmount({ micro }: { micro: number }) {
  return <span title={`${exactCredits(micro)} credits`}>{shortCredits(micro)}</span>;
}

export function Time({ at, none = "never" }: { at: string | null; none?: string }) {
  if (at === null) return <span class="quiet">{none}</span>;
  const ms = Date.parse(at);
  return (
    <time dateTime={at} title={exactTime(ms)}>
      {relativeTime(ms, Date.now())}
    </time>
  );
}

const tones: Readonly<Record<string, string>> = {
  active: "good",
  ready: "good",
  ok: "good",
  suspended: "warn",
  loading: "warn",
  closed: "off",
  revoked: "off",
  expired: "off",
  retired: "off",
  failed: "bad",
  unavailable: "bad",
  down: "bad",
  resting: "bad",
  out_of_credit: "bad",
};

export function Badge({ text, tone = tones[text] ?? "neutral" }: { text: string; tone?: string }) {
  return <span class={`badge ${tone}`}>{text}</span>;
}

/** Shown beside its name: a definition list of facts. */
export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value ?? <span class="quiet">–</span>}</dd>
        </div>
      ))}
    </dl>
  );
}
