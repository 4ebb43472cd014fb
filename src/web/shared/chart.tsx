/**
 * A chart of amounts by day, drawn by uPlot. A click on a name in the legend hides its series, and
 * the scale follows those that are shown. The table beside a chart has the exact amounts.
 */
import { useEffect, useRef } from "preact/hooks";
import "./language.ts";
import uPlot from "uplot";
import { microPerCredit } from "../../units.ts";
import { shortCredits } from "./numbers.ts";
import { themeChanged } from "./theme.tsx";

export interface Series {
  name: string;
  /** One amount for each day. */
  micro: readonly number[];
}

const heightPx = 220;
const legendMax = 8;

interface Content {
  /** Days, or times of hours: `2027-01-31` or `2027-01-31 18:00`. */
  times: readonly string[];
  series: readonly Series[];
}

/** Further values of the same series change the bars and lines in place. */
export function Chart({ times, series, label }: Content & { label: string }) {
  const place = useRef<HTMLElement>(null);
  const shown = useRef<Content>({ times, series });
  shown.current = { times, series };
  const plotted = useRef<uPlot | null>(null);
  const names = JSON.stringify(series.map(({ name }) => name));
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    let plot = draw(element, shown);
    plotted.current = plot;
    const redraw = () => {
      plot.destroy();
      plot = draw(element, shown);
      plotted.current = plot;
    };
    const system = matchMedia("(prefers-color-scheme: dark)");
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: heightPx }));
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
  const content = JSON.stringify([times, series]);
  useEffect(() => plotted.current?.setData(dataOf(shown.current)), [content]);
  return <figure class="chart" ref={place} aria-label={label} />;
}

function dataOf({ times, series }: Content): uPlot.AlignedData {
  const rows = series.map(({ micro }) => micro.map((amount) => amount / microPerCredit));
  return [times.map((_time, index) => index), ...rows];
}

function draw(element: HTMLElement, shown: { readonly current: Content }): uPlot {
  const { series } = shown.current;
  const color = (name: string) => getComputedStyle(element).getPropertyValue(`--${name}`).trim();
  const axis = { stroke: resolved(color("quiet")), grid: { stroke: resolved(color("line")), width: 1 } };
  const bars = uPlot.paths.bars?.({ size: [0.7, 40] });
  const options: uPlot.Options = {
    width: element.clientWidth,
    height: heightPx,
    legend: { show: series.length > 1 && series.length <= legendMax, live: true },
    cursor: { drag: { x: false, y: false } },
    scales: {
      // Half a day more at both ends, so that the first and the last bar are whole.
      x: { time: false, range: (_plot, min, max) => [min - 0.5, max + 0.5] },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        values: (_plot, splits) => splits.map((split) => shortTime(shown.current.times[split] ?? "")),
        space: 60,
        incrs: [1, 2, 5, 7, 14, 30, 60, 90],
      },
      { ...axis, size: 70, values: (_plot, splits) => splits.map((credits) => compact(credits)) },
    ],
    series: [
      { value: (_plot, index) => shown.current.times[index] ?? "" },
      ...series.map(({ name }, number) => ({
        label: name,
        stroke: resolved(color(`series-${(number % 6) + 1}`)),
        width: 2,
        value: (_plot: uPlot, _credits: number, _series: number, index: number | null) =>
          index === null ? "–" : shortCredits(shown.current.series[number]?.micro[index] ?? 0),
        ...(series.length === 1 && bars
          ? { fill: resolved(color("series-1")), paths: bars, width: 0, points: { show: false } }
          : {}),
      })),
    ],
  };
  return new uPlot(options, dataOf(shown.current), element);

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
function shortTime(time: string): string {
  return time.slice(time.length > 10 ? 11 : 5);
}

function compact(credits: number): string {
  return new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 }).format(credits);
}
