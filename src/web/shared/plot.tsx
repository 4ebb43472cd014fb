/**
 * Stacked bars of series, as elements that the style colours, with the values of a time in a box at
 * the pointer. The bar of the present day or hour is hatched, because it still grows. `chart.tsx`
 * puts sum, legend and table around it.
 */
import { useState } from "preact/hooks";
import { microPerCredit } from "../../units.ts";
import { shortCredits } from "./numbers.ts";
import { hourOf, today } from "./times.ts";

export interface Drawn {
  name: string;
  /** One amount for each time. */
  micro: readonly number[];
  /** Variable of the style, such as `series-1`. */
  color: string;
  isShown: boolean;
}

interface PlotProps {
  /** Days, or times of hours: `2027-01-31` or `2027-01-31 18:00`. */
  times: readonly string[];
  series: readonly Drawn[];
}

/** Fewer times leave the sides empty, so that bars are not too wide. */
const timesMin = 14;
/** Labels of times that fit beside each other on a phone. */
const labelsMax = 8;

export function Plot({ times, series }: PlotProps) {
  const [at, setAt] = useState<number | null>(null);
  const shown = series.filter(({ isShown }) => isShown);
  const sums = times.map((_, index) => shown.reduce((sum, { micro }) => sum + (micro[index] ?? 0), 0));
  const ticks = ticksTo(Math.max(...sums) / microPerCredit);
  const top = (ticks.at(-1) ?? 1) * microPerCredit;
  const every = Math.ceil(times.length / labelsMax);
  const width = `${100 / Math.max(times.length, timesMin)}%`;
  return (
    <div class="plot" aria-hidden="true" onPointerLeave={() => setAt(null)}>
      <div class="ticks">
        {ticks.toReversed().map((credits) => (
          <span key={credits}>{compact(credits)}</span>
        ))}
      </div>
      {times.map((time, index) => (
        <div
          key={time}
          class={time === today() || time === hourOf(Date.now()) ? "time growing" : "time"}
          style={{ width }}
          onPointerEnter={() => setAt(index)}
        >
          <div>
            {shown.toReversed().map(({ name, micro, color }) => (
              <i
                key={name}
                style={{ height: `${((micro[index] ?? 0) / top) * 100}%`, background: `var(--${color})` }}
              />
            ))}
          </div>
          {(times.length - 1 - index) % every === 0 && <span>{tickLabelOf(time)}</span>}
          {index === at && (
            <div class={index < times.length / 2 ? "box" : "box before"}>
              <strong>{time}</strong>
              {shown.map((one) => (
                <p key={one.name}>
                  <Swatch of={one} />
                  {one.name} <span class="number">{shortCredits(one.micro[index] ?? 0)}</span>
                </p>
              ))}
              {shown.length > 1 && (
                <p>
                  total <span class="number">{shortCredits(sums[index] ?? 0)}</span>
                </p>
              )}
            </div>
          )}
        </div>
      ))}
    </div>
  );
}

/** The course of a figure, without its numbers. */
export function Spark({ of }: { of: readonly number[] }) {
  const most = Math.max(1, ...of);
  const points = of.map((value, at) => `${at},${1 - value / most}`).join(" ");
  return (
    <svg class="spark" viewBox={`0 0 ${of.length - 1} 1`} preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points} />
    </svg>
  );
}

export function Swatch({ of: { color, isShown } }: { of: Drawn }) {
  const border = `2px solid var(--${color})`;
  return <i class="swatch" style={{ border, background: isShown ? `var(--${color})` : "none" }} />;
}

/** Returns up to five round numbers from 0 to at least `most`. */
function ticksTo(most: number): number[] {
  const least = (most || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
  return Array.from({ length: Math.ceil((most || 1) / step) + 1 }, (_, index) => index * step);
}

/** Returns `18:00` of an hour, and `01-31` of a day. */
function tickLabelOf(time: string): string {
  return time.slice(time.length > 10 ? 11 : 5);
}

function compact(credits: number): string {
  const notation = credits < 1_000_000 ? "standard" : "compact";
  return new Intl.NumberFormat("en-US", { notation, maximumSignificantDigits: 3 }).format(credits);
}
