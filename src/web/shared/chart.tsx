/**
 * A chart of amounts by day, drawn by uPlot. A click on a name in the legend hides its series, and
 * the scale follows those that are shown. The table beside a chart has the exact amounts.
 */
import { useEffect, useRef } from "preact/hooks";
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

export function Chart({
  days,
  series,
  label,
}: {
  days: readonly string[];
  series: readonly Series[];
  label: string;
}) {
  const place = useRef<HTMLElement>(null);
  const content = JSON.stringify([days, series]);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    let plot = draw(element, days, series);
    const redraw = () => {
      plot.destroy();
      plot = draw(element, days, series);
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
    };
  }, [content]);
  return <figure class="chart" ref={place} aria-label={label} />;
}

function draw(element: HTMLElement, days: readonly string[], series: readonly Series[]): uPlot {
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
        values: (_plot, splits) => splits.map((split) => days[split]?.slice(5) ?? ""),
        space: 60,
        incrs: [1, 2, 5, 7, 14, 30, 60, 90],
      },
      { ...axis, size: 70, values: (_plot, splits) => splits.map((credits) => compact(credits)) },
    ],
    series: [
      { value: (_plot, index) => days[index] ?? "" },
      ...series.map(({ name, micro }, number) => ({
        label: name,
        stroke: resolved(color(`series-${(number % 6) + 1}`)),
        width: 2,
        value: (_plot: uPlot, _credits: number, _series: number, index: number | null) =>
          index === null ? "–" : shortCredits(micro[index] ?? 0),
        ...(series.length === 1 && bars
          ? { fill: resolved(color("series-1")), paths: bars, width: 0, points: { show: false } }
          : {}),
      })),
    ],
  };
  const rows = series.map(({ micro }) => micro.map((amount) => amount / microPerCredit));
  return new uPlot(options, [days.map((_day, index) => index), ...rows], element);

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

function compact(credits: number): string {
  return new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 }).format(credits);
}
