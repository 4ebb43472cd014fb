/** Rows of a list that are chosen with boxes, by their keys. They stay so on its other pages. */
import { useRef, useState } from "preact/hooks";
import type { Column } from "./table.tsx";

export function useChoice<Row>(keyOf: (row: Row) => string = () => "") {
  const [chosen, setChosen] = useState<ReadonlyMap<string, Row>>(new Map());
  const last = useRef("");
  const boxOf = (label: string, rows: readonly Row[], rowsTo = () => rows) => (
    <input
      type="checkbox"
      aria-label={label}
      checked={rows.every((row) => chosen.has(keyOf(row)))}
      onClick={({ currentTarget: { checked }, shiftKey }) => {
        const range = rowsTo();
        const own = new Map((shiftKey ? range : rows).map((row) => [keyOf(row), row]));
        setChosen(new Map(checked ? [...chosen, ...own] : [...chosen].filter(([key]) => !own.has(key))));
      }}
    />
  );
  const column = (data: readonly Row[]): Column<Row> => ({
    title: "Choose",
    box: boxOf("Choose all of this page", data),
    cell: (row) =>
      // With the shift key, all rows since the one before.
      boxOf(`Choose ${keyOf(row)}`, [row], () => {
        const to = data.indexOf(row);
        const from = data.findIndex((each) => keyOf(each) === last.current);
        last.current = keyOf(row);
        return from === -1 ? [row] : data.slice(Math.min(from, to), Math.max(from, to) + 1);
      }),
  });
  return { rows: [...chosen.values()], column, clear: () => setChosen(new Map()) };
}
