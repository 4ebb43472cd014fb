/**
 * A table with a caption for screen readers. If it does not fit, the cells of each row wrap and show
 * their titles, so that no value or button is out of sight.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { columnsWith, type Kind, valueAt } from "../../actions/columns.ts";
import { Button } from "./button.tsx";
import { decimalsOf, wholeNumber } from "./numbers.ts";
import { go, Link, withParameters } from "./router.tsx";
import { Shown } from "./states.tsx";
import type { Loaded } from "./use-loaded.ts";
import { Amount, Badge, Id, Time } from "./values.tsx";

export interface Column<Row> {
  title: string;
  /** In the place of the title. */
  box?: ComponentChildren;
  /** `decimals`: those of the amounts of the column. */
  cell(row: Row, decimals?: number): ComponentChildren;
  isNumber?: boolean;
  /** Left out if no row has a value. */
  isOptional?: boolean;
  hasValue?(row: Row): boolean;
  /** Of a column of amounts. */
  microOf?: ((row: Row) => number) | null;
}

export const columnsOf = columnsWith(cellOf);

function cellOf(kind: Kind, value: unknown, decimals?: number): ComponentChildren {
  if (kind === "time") return <Time at={value === null ? null : String(value)} />;
  if (value === null) return <span class="quiet">–</span>;
  if (Array.isArray(value)) return value.includes("*") ? <span class="quiet">all</span> : value.join(", ");
  if (typeof value !== "number") return textOf(kind, String(value));
  if (kind === "credits" || kind === "change") return <Amount micro={value} decimals={decimals ?? 0} />;
  if (kind === "number") return value;
  if (kind === "ms") return `${value} ms`;
  return kind === "price" && value === 0 ? "free" : wholeNumber(value);
}

function textOf(kind: Kind, text: string): ComponentChildren {
  if (kind === "state") return <Badge text={text} />;
  return kind === "code" ? <Id of={text} /> : text;
}

interface TableProps<Row> {
  caption: string;
  columns: readonly Column<NoInfer<Row>>[];
  keyOf?(row: Row): string;
  foot?: ComponentChildren;
  /** In the place of a table without rows. */
  empty?: ComponentChildren;
}

type RowsProps<Row> = TableProps<Row> & { rows: readonly Row[] };

/** A row without `keyOf` is known by its id, or else by its place. */
export function Table<Row extends object>(props: RowsProps<Row>) {
  const { rows, empty } = props;
  return rows.length === 0 && empty !== undefined ? empty : <Rows {...props} />;
}

function Rows<Row extends object>(props: RowsProps<Row>) {
  const { caption, rows, keyOf = idOf, foot } = props;
  const columns = props.columns.filter(
    ({ isOptional, hasValue }) => !isOptional || hasValue === undefined || rows.some((row) => hasValue(row)),
  );
  const region = useRef<HTMLElement>(null);
  const decimals = columns.map(({ microOf }) =>
    microOf ? Math.max(0, ...rows.map((row) => decimalsOf(microOf(row)))) : undefined,
  );
  useLayoutEffect(() => fit(region.current));
  useEffect(() => {
    const resized = new ResizeObserver(() => fit(region.current));
    if (region.current !== null) resized.observe(region.current);
    return () => resized.disconnect();
  }, []);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a word without end still scrolls
    <section ref={region} class="table" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ title, box = title, isNumber }, column) => (
              <th key={column} scope="col" class={isNumber ? "number" : ""}>
                {box}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row) ?? index}>
              {columns.map(({ title, cell, isNumber }, column) => (
                <td key={column} data-title={title} class={isNumber ? "number" : ""}>
                  {cell(row, decimals[column])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {foot}
      </table>
    </section>
  );
}

/** Returns the values that a row has as facts: titles with their cells. */
export function factsOf<Row>(row: Row, columns: readonly Column<Row>[]) {
  return columns
    .filter(({ hasValue }) => hasValue?.(row) ?? true)
    .map(({ title, cell }) => [title, cell(row)] as const);
}

/** A table of a loaded list. */
export function ShownTable<Row extends object>({
  of,
  ...table
}: TableProps<Row> & { of: Loaded<{ data: readonly Row[] }> }) {
  return <Shown of={of}>{({ data }) => <Table {...table} rows={data} />}</Shown>;
}

/** Wraps the rows of a table that is wider than its region as it would be without that. */
function fit(region: HTMLElement | null): void {
  region?.classList.remove("narrow");
  if (region !== null && region.scrollWidth > region.clientWidth) region.classList.add("narrow");
}

/** The first of these fields that a row has tells it from the other rows. */
const idNames = ["id", "journal_seq", "request_id", "seq", "version"];

function idOf(row: object): string | null {
  const name = idNames.find((each) => each in row);
  return name === undefined ? null : String(valueAt(row, name));
}

/** Links to the next page and back to the first one. The cursor is in the path. */
export function Pager({ next, isFirst }: { next: string | null; isFirst: boolean }) {
  if (isFirst && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      {!isFirst && <Link to={withParameters({ after: null })}>First page</Link>}
      {next !== null && <Button onClick={() => go(withParameters({ after: next }))}>Next page</Button>}
    </nav>
  );
}
