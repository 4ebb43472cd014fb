/** The period of a page: days in UTC, kept in the path. */

import { go, withParameters } from "./router.tsx";
import { dayOf, monthBefore } from "./times.ts";

const spans = [1, 7, 30, 90] as const;

/** `to` is exclusive. */
export function PeriodPicker({ from, to }: { from: string; to: string }) {
  const set = (changes: Record<string, string | null>) => go(withParameters({ ...changes, after: null }));
  const tomorrow = dayOf(Date.now(), 1);
  const month = monthBefore(Date.now());
  return (
    <div class="filters">
      {spans.map((days) => {
        const start = dayOf(Date.now(), 1 - days);
        return (
          <button
            key={days}
            type="button"
            aria-pressed={from === start && to === tomorrow}
            onClick={() => set({ from: start, to: tomorrow })}
          >
            {days === 1 ? "Today" : `${days} days`}
          </button>
        );
      })}
      <button
        type="button"
        aria-pressed={from === month.from && to === month.to}
        onClick={() => set({ ...month })}
      >
        Last month
      </button>
      <label for="from">
        From
        <input
          id="from"
          type="date"
          value={from}
          max={dayOf(Date.parse(to), -1)}
          onChange={({ currentTarget }) => currentTarget.value && set({ from: currentTarget.value })}
        />
      </label>
      <label for="to">
        to
        <input
          id="to"
          type="date"
          value={dayOf(Date.parse(to), -1)}
          min={from}
          onChange={({ currentTarget }) =>
            currentTarget.value && set({ to: dayOf(Date.parse(currentTarget.value), 1) })
          }
        />
      </label>
      <span class="quiet">days in UTC</span>
    </div>
  );
}
