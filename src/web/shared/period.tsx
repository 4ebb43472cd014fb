/** The period of a page: days, kept in the path. */

import { go, withParameters } from "./router.tsx";
import { dayAfter, monthBefore, timezone, today, weekBefore } from "./times.ts";

const spans = [1, 7, 30, 90] as const;

/** `to` is exclusive. Null is no bound, which `hasAll` offers. */
export function PeriodPicker(props: { from: string | null; to: string | null; hasAll?: boolean }) {
  const { from, to, hasAll = false } = props;
  const set = (changes: Record<string, string | null>) => go(withParameters({ ...changes, after: null }));
  const tomorrow = today(1);
  const lastDay = to === null ? undefined : dayAfter(to, -1);
  const ranges = [
    ...spans.map((days) => ({
      title: days === 1 ? "Today" : `${days} days`,
      to: tomorrow,
      from: today(1 - days),
    })),
    { title: "Last week", ...weekBefore() },
    { title: "Last month", ...monthBefore() },
  ];
  ranges.splice(1, 0, { title: "Yesterday", from: today(-1), to: today() });
  return (
    <div class="filters">
      {ranges.map(({ title, ...range }) => (
        <button
          key={title}
          type="button"
          aria-pressed={from === range.from && to === range.to}
          onClick={() => set(range)}
        >
          {title}
        </button>
      ))}
      {hasAll && (
        <button
          type="button"
          aria-pressed={from === null && to === null}
          onClick={() => set({ from: "all", to: null })}
        >
          All
        </button>
      )}
      <label for="from">
        From
        <input
          id="from"
          type="date"
          value={from ?? ""}
          max={lastDay}
          onChange={({ currentTarget }) => currentTarget.value && set({ from: currentTarget.value })}
        />
      </label>
      <label for="to">
        to
        <input
          id="to"
          type="date"
          value={lastDay ?? ""}
          min={from ?? undefined}
          onChange={({ currentTarget }) =>
            currentTarget.value && set({ to: dayAfter(currentTarget.value, 1) })
          }
        />
      </label>
      <span class="quiet">days in {timezone()}</span>
    </div>
  );
}
