/** Small values: credits with all digits, times with the exact one in the title, states, ids. */

import type { ComponentChildren } from "preact";
import { dayMs, exactCredits } from "../../units.ts";
import { Button } from "./button.tsx";
import { creditsWith, shortCredits } from "./numbers.ts";
import { dayInWords, exactTime, relativeTime } from "./times.ts";
import { toast } from "./toasts.tsx";

/** An amount with all its digits. `decimals`: of the column that it is in. */
export function Amount({ micro, decimals = 0 }: { micro: number; decimals?: number }) {
  return (
    <span class="amount" title={`${exactCredits(micro)} credits`}>
      {creditsWith(micro, decimals)}
    </span>
  );
}

/** An amount for a figure; the title has all digits. */
export function ShortAmount({ micro }: { micro: number }) {
  return <span title={`${exactCredits(micro)} credits`}>{shortCredits(micro)}</span>;
}

/** Returns an id without its middle. */
function shortId(id: string): string {
  return id.length <= 14 ? id : `${id.slice(0, 9)}…${id.slice(-5)}`;
}

export function ShortId({ of: id }: { of: string }) {
  return <code title={id}>{shortId(id)}</code>;
}

/** An id that a click copies. */
export function Id({ of: id }: { of: string }) {
  if (shortId(id) === id) return <code>{id}</code>;
  return (
    <Button
      class="copy"
      aria-label={`Copy ${shortId(id)}: ${id}`}
      onClick={() =>
        navigator.clipboard.writeText(id).then(
          () => toast(`Copied ${id}.`),
          () => toast(`This browser forbids copying. The id is ${id}.`),
        )
      }
    >
      <ShortId of={id} />
    </Button>
  );
}

export function Time({ at }: { at: string | null }) {
  if (at === null) return <span class="quiet">never</span>;
  const ms = Date.parse(at);
  return (
    <time dateTime={at} title={exactTime(ms)}>
      {relativeTime(ms, Date.now())}
    </time>
  );
}

/** When something is due: hours or a day that are near, otherwise the date. */
export function Due({ at }: { at: string }) {
  const [ms, nowMs] = [Date.parse(at), Date.now()];
  return (
    <time dateTime={at} title={exactTime(ms)}>
      {ms - nowMs < 2 * dayMs ? relativeTime(ms, nowMs) : dayInWords(ms, nowMs)}
    </time>
  );
}

/** What is in none of these is neutral. */
const tones = {
  good: "active,ready,ok,used,opened,delivered",
  warn: "warn,updated,invited,lapsed,suspended,loading,almost used up",
  off: "unchanged,closed,revoked,expired,retired",
  bad: "refused,failed,error,unavailable,down,resting,out_of_credit,not ready,failing,dead,used up,needs repair",
};

function toneOf(text: string): string {
  return Object.entries(tones).find(([, texts]) => texts.split(",").includes(text))?.[0] ?? "neutral";
}

export function Badge({ text, tone = toneOf(text) }: { text: string; tone?: string }) {
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
