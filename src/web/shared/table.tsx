/** A table with a caption for screen readers. It scrolls by itself if the window is narrow. */
import type { ComponentChildren } from "preact";
import { go, Link, withParameters } from "./router.tsx";
import { Shown, ShownList } from "./states.tsx";
import type { Loaded } from "./use-loaded.ts";

export interface Column<Row> {
  title: string;
  cell(row: Row): ComponentChildren;
  isNumber?: boolean;
}

interface TableProps<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  keyOf?(row: Row): string;
  foot?: ComponentChildren;
}

/** A row without `keyOf` is known by its `id`, or else by its place. */
export function Table<Row extends object>(props: TableProps<Row> & { rows: readonly Row[] }) {
  const { caption, columns, rows, keyOf = idOf, foot } = props;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls needs the keyboard
    <section class="table" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ title, isNumber }) => (
              <th key={title} scope="col" class={isNumber ? "number" : ""}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row) ?? index}>
              {columns.map(({ title, cell, isNumber }) => (
                <td key={title} class={isNumber ? "number" : ""}>
                  {cell(row)}
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

/** A table of a loaded list. Without `empty`, a list without rows is a table without rows. */
export function ShownTable<Row extends object>(
  props: TableProps<Row> & { of: Loaded<{ data: readonly Row[] }>; empty?: ComponentChildren },
) {
  const { of, empty, ...table } = props;
  const tableOf = ({ data }: { data: readonly Row[] }) => <Table {...table} rows={data} />;
  if (empty === undefined) return <Shown of={of}>{tableOf}</Shown>;
  return (
    <ShownList of={of} empty={empty}>
      {tableOf}
    </ShownList>
  );
}

function idOf(row: object): string | null {
  return "id" in row ? String(row.id) : null;
}

/** Links to the next page and back to the first one. The cursor is in the path. */
export function Pager({ next, isFirst }: { next: string | null; isFirst: boolean }) {
  if (isFirst && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      {!isFirst && <Link to={withParameters({ after: null })}>First page</Link>}
      {!isFirst && (
        <button type="button" onClick={() => history.back()}>
          Back
        </button>
      )}
      {next !== null && (
        <button type="button" onClick={() => go(withParameters({ after: next }))}>
          Next page
        </button>
      )}
    </nav>
  );
}
