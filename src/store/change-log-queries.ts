/**
 * The statements of the list of changes, for both stores.
 *
 * The list has the entries of all journals without windows, and the rows of `change_log`. Newest
 * first. Guarantees that a page reads rows in proportion to its length, unless a filter leaves
 * most of them out.
 */
import {
  type ChangeLog,
  type ChangeLogRow,
  type ChangePlace,
  type ChangesQuery,
  consequences,
  type LoggedChange,
  listedColumns,
  otherKinds,
  type Source,
  sources,
} from "./change-log.ts";
import { Conditions } from "./conditions.ts";
import type { SqlConnections } from "./queries.ts";
import { insertOf, parametersOf, type SqlDialect, type SqlStatement } from "./sql.ts";
import { tableOf, type Value } from "./table.ts";
import { changeLogTable } from "./tables.ts";

const listedTable = tableOf("change", listedColumns);

interface SourceSql {
  /** The expressions of columns that the table has by no such name. */
  columns: Readonly<Record<string, string>>;
  from: string;
  /** The columns after the time that make the order complete, with their types. */
  place: readonly (readonly [column: string, type: "text" | "number"])[];
  condition?: string;
}

const none = "cast(null as text)";

/** The index `journal_by_time` has the same condition. */
const isNoConsequence = `kind not in (${consequences.map((kind) => `'${kind}'`).join(", ")})`;

const sqlOf: Readonly<Record<Source, SourceSql>> = {
  journal: {
    columns: { place: "account || ':' || seq" },
    from: "journal",
    place: [
      ["account", "text"],
      ["seq", "number"],
    ],
    condition: isNoConsequence,
  },
  other: {
    columns: { place: "id", op: none, bucket: none, amount: "cast(null as bigint)", outcome: none },
    from: "change_log",
    place: [["id", "text"]],
  },
};

export function changeLogOn({ find, findPage, write }: SqlConnections, { parameter }: SqlDialect): ChangeLog {
  return {
    async changes(query) {
      const pages = sources
        .filter((source) => mayHave(source, query))
        .map(async (source) => {
          const rows = await findPage("history", changesSql(source, query, parameter));
          return rows.map((cells): LoggedChange => ({ ...listedTable.rowOf(cells), source }));
        });
      const all = (await Promise.all(pages)).flat();
      // Each page is in its order already, and sorting keeps the order of equal rows.
      return all.sort((a, b) => b.atMs - a.atMs || rank(a.source) - rank(b.source)).slice(0, query.limit);
    },
    async names(ids) {
      if (ids.length === 0) return new Map();
      const list = parametersOf(ids, parameter);
      const named = ["api_key", "operator_key", "link"].map(
        (from) => `select id, name from ${from} where id in (${list}) and name is not null`,
      );
      const rows = await find("service", { text: named.join(" union all "), values: ids });
      return new Map(rows.map(([id, name]) => [String(id), String(name)]));
    },
    async logChange(row) {
      await write(insertOf(changeLogTable, row, parameter));
    },
  };
}

/**
 * Adds the row of a change once, if `condition` holds after the change itself, in the same
 * transaction: two nodes may try the same change, and then only one has made it.
 */
export function logIf(
  row: ChangeLogRow,
  condition: (bound: (value: Value) => string) => string,
  { parameter }: Pick<SqlDialect, "parameter">,
): SqlStatement {
  const values = changeLogTable.valuesOf(row);
  const cells = changeLogTable.columns.map(
    ({ type }, index) => `cast(${parameter(index + 1)} as ${type === "ms" ? "bigint" : "text"})`,
  );
  const holds = condition((value) => parameter(values.push(value)));
  return {
    text: `insert into change_log (${changeLogTable.list()}) select ${cells.join(", ")}
      where exists (${holds}) on conflict do nothing`,
    values,
  };
}

function rank(source: Source): number {
  return sources.indexOf(source);
}

function mayHave(source: Source, { kind, subject }: ChangesQuery): boolean {
  if (subject !== undefined && source === "journal") return false;
  if (kind === undefined) return true;
  return source === (otherKinds.some((each) => each === kind) ? "other" : "journal");
}

function changesSql(
  source: Source,
  { by, kind, account, subject, fromMs, toMs, after, limit }: ChangesQuery,
  p: SqlDialect["parameter"],
): SqlStatement {
  const { columns, from, place, condition } = sqlOf[source];
  const conditions = new Conditions(p);
  if (condition !== undefined) conditions.always(condition);
  conditions
    .and("by = ?", by)
    .and("account = ?", account)
    .and("subject = ?", subject)
    .and("kind = ?", kind)
    .and("at_ms >= ?", fromMs)
    .and("at_ms < ?", toMs);
  const order = ["at_ms", ...place.map(([column]) => column)];
  if (after?.source === source) {
    const marks = order.map(() => "?").join(", ");
    conditions.and(`(${order.join(", ")}) < (${marks})`, ...placeCellsOf(after, place));
  } else if (after !== undefined) {
    conditions.and(`at_ms ${rank(source) > rank(after.source) ? "<=" : "<"} ?`, after.atMs);
  }
  const list = listedTable.columns.map(({ name }) => `${columns[name] ?? name} as ${name}`).join(", ");
  const { sql, values } = conditions.page(order.map((column) => `${column} desc`).join(", "), limit);
  return { text: `select ${list} from ${from}${sql}`, values };
}

/** Account names have no colon. An id, which is alone in its place, can have some. */
function placeCellsOf({ atMs, place }: ChangePlace, columns: SourceSql["place"]): Value[] {
  const parts = columns.length === 1 ? [place] : place.split(":");
  return [
    atMs,
    ...columns.map(([, type], n) => (type === "number" ? Number(parts[n] ?? 0) : (parts[n] ?? ""))),
  ];
}
