/** The period of a page: days, kept in the path. */

import { Button } from "./button.tsx";
import { go, withParameters } from "./router.tsx";
import { dayAfter, monthBefore, timezone, today, weekBefore } from "./times.ts";

/** `to` is exclusive. Null is no bound, which `hasAll` offers. */
export function PeriodPicker(props: { from: string | null; to: string | null; hasAll?: boolean }) {
  const { from, to, hasAll = false } = props;
  // Each key of a date that is typed is a change.
  const set = (changes: Record<string, string | null>, replace = false) =>
    go(withParameters({ ...changes, after: null }), replace);
  const lastDay = to === null ? undefined : dayAfter(to, -1);
  const days = (title: string, first: number, end = 1) => ({ title, from: today(first), to: today(end) });
  const ranges: { title: string; from: string | null; to: string | null }[] = [
    days("Today", 0),
    days("Yesterday", -1, 0),
    ...[7, 30, 90].map((count) => days(`${count} days`, 1 - count)),
    { title: "Last week", ...weekBefore() },
    { title: "Last month", ...monthBefore() },
    ...(hasAll ? [{ title: "All", from: null, to: null }] : []),
  ];
  return (
    <div class="filters">
      <div class="spans">
        {ranges.map(({ title, ...range }) => (
          <Button
            key={title}
            aria-pressed={from === range.from && to === range.to}
            onClick={() => set({ ...range, from: range.from ?? "all" })}
          >
            {title}
          </Button>
        ))}
      </div>
      {[
        { id: "from", label: "From", value: from, max: lastDay, shift: 0 },
        { id: "to", label: "to", value: lastDay, min: from ?? undefined, max: "9999-12-31", shift: 1 },
      ].map(({ id, label, value, shift, ...bounds }) => (
        <label key={id} for={id}>
          {label}
          <input
            id={id}
            type="date"
            value={value ?? ""}
            {...bounds}
            onChange={({ currentTarget: { value: day } }) => day && set({ [id]: dayAfter(day, shift) }, true)}
          />
        </label>
      ))}
      <span class="quiet">{timezone()}</span>
    </div>
  );
}
