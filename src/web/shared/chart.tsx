/**
 * A chart of amounts over time. Several series have a legend of buttons that show and hide them,
 * and can be drawn apart, each on its own scale, so that a large series does not flatten the
 * others. All values are in a table below, which needs no pointer.
 */
import { useId, useState } from "preact/hooks";
import { shortCredits } from "./numbers.ts";
import { type Drawn, Plot } from "./plot.tsx";
import { Table } from "./table.tsx";
import { Amount } from "./values.tsx";

export interface Series {
  /** Differs from the names of other series. */
  name: string;
  /** One amount for each time. */
  micro: readonly number[];
}

/** How somebody looks at a chart: kept by the page, which loads other data into the chart. */
interface ChartView {
  hidden: ReadonlySet<string>;
  isApart: boolean;
  change(view: Partial<Pick<ChartView, "hidden" | "isApart">>): void;
}

/** Colours in the style. Further series are quiet. */
const colorsMax = 6;

export function useChartView(): ChartView {
  const [view, setView] = useState<Pick<ChartView, "hidden" | "isApart">>({
    hidden: new Set<string>(),
    isApart: false,
  });
  return { ...view, change: (changes) => setView((before) => ({ ...before, ...changes })) };
}

interface ChartProps {
  /** Days, or times of hours: `2027-01-31` or `2027-01-31 18:00`. */
  times: readonly string[];
  series: readonly Series[];
  label: string;
  view: ChartView;
}

export function Chart({ times, series, label, view }: ChartProps) {
  const [at, setAt] = useState<number | null>(null);
  const [isOpen, setOpen] = useState(false);
  const group = useId();
  const drawn = series.map(({ name, micro }, number) => ({
    name,
    micro,
    isShown: !view.hidden.has(name),
    color: number < colorsMax ? `series-${number + 1}` : "quiet",
  }));
  const plot = { times, group, onPoint: setAt };
  const isApart = series.length > 1 && view.isApart;
  return (
    <figure class="chart" aria-label={label}>
      {isApart ? (
        <div class="cards">
          {drawn
            .filter(({ isShown }) => isShown)
            .map((one) => (
              <div key={one.name}>
                <h3>{one.name}</h3>
                <Plot {...plot} series={[one]} heightPx={140} />
              </div>
            ))}
        </div>
      ) : (
        <Plot {...plot} series={drawn} heightPx={220} />
      )}
      <Legend drawn={drawn} view={view} at={at !== null && at < times.length ? at : null} times={times} />
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>Values as a table</summary>
        {isOpen && <ValueTable times={times} series={series} label={label} />}
      </details>
    </figure>
  );
}

/** The values of the time that the pointer is at, or of the whole period. */
function Legend(props: {
  drawn: readonly Drawn[];
  view: ChartView;
  at: number | null;
  times: ChartProps["times"];
}) {
  const { drawn, view, at, times } = props;
  const shownValue = ({ micro }: Drawn) =>
    shortCredits(at === null ? micro.reduce((sum, amount) => sum + amount, 0) : (micro[at] ?? 0));
  const toggle = ({ name, isShown }: Drawn) => {
    const hidden = new Set(view.hidden);
    if (isShown) hidden.add(name);
    else hidden.delete(name);
    view.change({ hidden });
  };
  const [first] = drawn;
  return (
    <div class="filters">
      <span class="quiet nowrap">{at === null ? "In the whole period" : times[at]}:</span>
      {drawn.length === 1 && first ? (
        <span class="number">{shownValue(first)}</span>
      ) : (
        <>
          {drawn.map((one) => (
            <button key={one.name} type="button" aria-pressed={one.isShown} onClick={() => toggle(one)}>
              <Swatch color={one.color} isShown={one.isShown} />
              {one.name} <span class="number">{shownValue(one)}</span>
            </button>
          ))}
          <button
            type="button"
            aria-pressed={view.isApart}
            onClick={() => view.change({ isApart: !view.isApart })}
          >
            Each on its own scale
          </button>
        </>
      )}
    </div>
  );
}

function Swatch({ color, isShown }: Pick<Drawn, "color" | "isShown">) {
  const size = { display: "inline-block", width: "10px", height: "10px", marginRight: "8px" };
  const border = `2px solid var(--${color})`;
  const background = isShown ? `var(--${color})` : "none";
  return <i style={{ ...size, borderRadius: "50%", border, background }} />;
}

function ValueTable({ times, series, label }: Pick<ChartProps, "times" | "series" | "label">) {
  return (
    <Table
      caption={label}
      rows={times.map((time, index) => ({ time, index }))}
      keyOf={({ time }) => time}
      columns={[
        { title: "Time (UTC)", cell: ({ time }) => <span class="nowrap">{time}</span> },
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
