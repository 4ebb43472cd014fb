/**
 * A chart of amounts over time, as stacked bars below their sum. Several series have a legend of
 * buttons that show and hide them. The values of a time are in a box at the pointer, and all of them
 * in a table below, which needs no pointer.
 */

import { useState } from "preact/hooks";
import { Button } from "./button.tsx";
import { Figure } from "./layout.tsx";
import { shortCredits, wholeNumber } from "./numbers.ts";
import { type Drawn, Plot, Swatch } from "./plot.tsx";
import { Table } from "./table.tsx";
import { type Series, totalOf } from "./usage-series.ts";
import { Amount, ShortAmount } from "./values.tsx";

/** Colours in the style. Further series are quiet. */
const colorsMax = 6;

/** Names of hidden series: kept by the page, which loads other data into the chart. */
export function useChartView() {
  const [hidden, hide] = useState<ReadonlySet<string>>(new Set());
  return { hidden, hide };
}
type ChartView = ReturnType<typeof useChartView>;

interface ChartProps {
  /** Days, or times of hours: `2027-01-31` or `2027-01-31 18:00`. */
  times: readonly string[];
  /** The largest first. */
  series: readonly Series[];
  label: string;
  view: ChartView;
  /** The sum of the period before, which is as long. */
  beforeMicro?: number | undefined;
}

export function Chart({ times, series, label, view, beforeMicro = 0 }: ChartProps) {
  const [isOpen, setOpen] = useState(false);
  const drawn = series.map(({ name, micro }, number) => ({
    name,
    micro,
    isShown: !view.hidden.has(name),
    color: number < colorsMax ? `series-${number + 1}` : "quiet",
  }));
  const total = drawn.reduce((sum, one) => sum + totalOf(one.micro), 0);
  return (
    <figure class="chart" aria-label={label}>
      <Figure name="Credits in the whole period" note={beforeMicro > 0 && changeTo(total, beforeMicro)}>
        <ShortAmount micro={total} />
      </Figure>
      <Plot times={times} series={drawn} />
      {drawn.length > 1 && <Legend drawn={drawn} view={view} />}
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>Values as a table</summary>
        {isOpen && <ValueTable times={times} series={series} label={label} />}
      </details>
    </figure>
  );
}

export function changeTo(total: number, before: number, what = "the period before"): string {
  const percent = Math.round((total / before - 1) * 100);
  // A short time before, or one of trying: a percentage would say nothing.
  if (percent >= 900) return `${wholeNumber(Math.round(total / before))} times ${what}`;
  return `${percent < 0 ? "−" : "+"}${wholeNumber(Math.abs(percent))} % compared with ${what}`;
}

function Legend({ drawn, view }: { drawn: readonly Drawn[]; view: ChartView }) {
  const toggle = ({ name, isShown }: Drawn) => {
    const hidden = new Set(view.hidden);
    if (isShown) hidden.add(name);
    else hidden.delete(name);
    view.hide(hidden);
  };
  return (
    <div class="filters legend">
      {drawn.map((one) => (
        <Button key={one.name} aria-pressed={one.isShown} onClick={() => toggle(one)}>
          <Swatch of={one} />
          {one.name} <span class="number">{shortCredits(totalOf(one.micro))}</span>
        </Button>
      ))}
    </div>
  );
}

function ValueTable({ times, series, label }: Pick<ChartProps, "times" | "series" | "label">) {
  return (
    <Table
      caption={label}
      rows={times.map((time, index) => ({ time, index }))}
      keyOf={({ time }) => time}
      columns={[
        { title: "Time", cell: ({ time }) => <span class="nowrap">{time}</span> },
        ...series.map(({ name, micro }) => ({
          title: name,
          isNumber: true,
          microOf: ({ index }: { index: number }) => micro[index] ?? 0,
          cell: ({ index }: { time: string; index: number }, decimals = 0) => (
            <Amount micro={micro[index] ?? 0} decimals={decimals} />
          ),
        })),
      ]}
    />
  );
}
