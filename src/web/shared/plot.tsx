/**
 * Draws series with uPlot: bars for one series, lines for several. The drawing follows the theme
 * and the width of its place. `chart.tsx` puts legend, values and table around it.
 */
import { useEffect, useRef } from "preact/hooks";
import "./language.ts";
import uPlot from "uplot";
import { microPerCredit } from "../../units.ts";
import { themeChanged } from "./theme.tsx";

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
  heightPx: number;
  /** Plots with the same group show the cursor at the same time. */
  group: string;
  /** Called with the time that the cursor is at; null if it left. */
  onPoint(index: number | null): void;
}

/** Further values of the same series, and series that are hidden, change the drawing in place. */
export function Plot(props: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  latest.current = props;
  const plotted = useRef<uPlot | null>(null);
  const names = JSON.stringify(props.series.map(({ name, color }) => [name, color]));
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    let plot = draw(element, latest);
    plotted.current = plot;
    const redraw = () => {
      plot.destroy();
      plot = draw(element, latest);
      plotted.current = plot;
    };
    const system = matchMedia("(prefers-color-scheme: dark)");
    const resized = new ResizeObserver(() =>
      plot.setSize({ width: element.clientWidth, height: latest.current.heightPx }),
    );
    resized.observe(element);
    addEventListener(themeChanged, redraw);
    system.addEventListener("change", redraw);
    return () => {
      resized.disconnect();
      removeEventListener(themeChanged, redraw);
      system.removeEventListener("change", redraw);
      plot.destroy();
      plotted.current = null;
    };
  }, [names]);
  const content = JSON.stringify([props.times, props.series]);
  useEffect(() => {
    const plot = plotted.current;
    if (plot === null) return;
    plot.batch(() => {
      plot.setData(dataOf(latest.current));
      for (const [number, { isShown }] of latest.current.series.entries()) {
        plot.setSeries(number + 1, { show: isShown });
      }
    });
  }, [content]);
  return <div ref={place} style={{ minHeight: `${props.heightPx}px` }} />;
}

function dataOf({ times, series }: PlotProps): uPlot.AlignedData {
  const rows = series.map(({ micro }) => micro.map((amount) => amount / microPerCredit));
  return [times.map((_time, index) => index), ...rows];
}

function draw(element: HTMLElement, latest: { readonly current: PlotProps }): uPlot {
  const { series, heightPx, group } = latest.current;
  const color = (name: string) => getComputedStyle(element).getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: resolved(color("quiet")),
    grid: { stroke: resolved(color("line")), width: 1 },
    ticks: { show: false },
  };
  const bars = uPlot.paths.bars?.({ size: [0.7, 40] });
  const options: uPlot.Options = {
    width: element.clientWidth,
    height: heightPx,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, sync: { key: group } },
    hooks: { setCursor: [({ cursor }) => latest.current.onPoint(cursor.idx ?? null)] },
    scales: {
      // Half a day more at both ends, so that the first and the last bar are whole.
      x: { time: false, range: (_plot, min, max) => [min - 0.5, max + 0.5] },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        values: (_plot, splits) => splits.map((split) => tickLabelOf(latest.current.times[split] ?? "")),
        space: 60,
        incrs: [1, 2, 5, 7, 14, 30, 60, 90],
      },
      { ...axis, size: 70, values: (_plot, splits) => splits.map((credits) => compact(credits)) },
    ],
    series: [
      {},
      ...series.map(({ name, color: line, isShown }) => ({
        label: name,
        stroke: resolved(color(line)),
        width: 2,
        show: isShown,
        ...(series.length === 1 && bars
          ? { fill: resolved(color(line)), paths: bars, width: 0, points: { show: false } }
          : {}),
      })),
    ],
  };
  return new uPlot(options, dataOf(latest.current), element);

  /** A canvas does not know `light-dark()`, but an element computes it. */
  function resolved(value: string): string {
    const probe = document.createElement("i");
    probe.style.color = value;
    element.append(probe);
    const computed = getComputedStyle(probe).color;
    probe.remove();
    return computed;
  }
}

/** Returns `18:00` of an hour, and `01-31` of a day. */
function tickLabelOf(time: string): string {
  return time.slice(time.length > 10 ? 11 : 5);
}

function compact(credits: number): string {
  const notation = credits < 1_000_000 ? "standard" : "compact";
  return new Intl.NumberFormat("en-US", { notation, maximumSignificantDigits: 3 }).format(credits);
}
