/**
 * A list as a description: where its rows come from, its filters, columns and pages, and the actions
 * of the list and of each row with their dialogs. Filters and cursor are in the path, so a list can be
 * shared.
 */
import { type ComponentChildren, type ComponentType, Fragment } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ActionTexts } from "../../actions/action.ts";
import { ActionDialog, type ActionProps } from "./action-dialog.tsx";
import { get, type Query } from "./api.ts";
import { Button } from "./button.tsx";
import { useChoice } from "./choice.tsx";
import { Card, PageHead } from "./layout.tsx";
import { Options } from "./options.tsx";
import { commandLine } from "./paths.ts";
import { go, type Place, withParameters } from "./router.tsx";
import { Empty, Shown } from "./states.tsx";
import { type Column, Pager, Table } from "./table.tsx";
import type { Page } from "./types.ts";
import { useLoaded } from "./use-loaded.ts";

/** Called when a dialog closes; `isDone` if its change was applied. */
type Close = (isDone?: boolean) => void;

/** What the page knows of a dialog of an action, and what differs from the action. */
export type Parts = Partial<ActionProps<unknown>>;

export interface ListAction {
  title: string;
  /** What the dialog does, if not everybody may do it. */
  action?: ActionTexts;
  look?: "primary" | "danger";
  /** What is no dialog, in the place of the button. */
  node?: ComponentChildren;
  /** Of the dialog of the action. */
  parts?: Parts;
  /** In place of that dialog. */
  dialog?(close: Close): ComponentChildren;
}

export interface RowAction<Row> {
  title: string;
  action: ActionTexts;
  /** Names action and row for screen readers. */
  label(row: Row): string;
  /** Default: each row has it. */
  isFor?(row: Row): boolean;
  parts?(row: Row): Parts;
}

export interface Filter {
  /** The parameter of page and API, and the id of the input. */
  name: string;
  label: string;
  /** The label is for screen readers only: the options say enough. */
  isLabelHidden?: boolean;
  /** Choices; the first one is that of a path without the parameter. Absent: a text is typed. */
  options?: readonly (readonly [value: string, title: string])[];
  /** A box to tick, or a button that removes what a link has set, in place of an input. */
  as?: "box" | "link";
}

interface ResourceProps<Row> {
  /** Absent: the list has one page and no filters. */
  place?: Place;
  path: string;
  limit: number;
  filters?: readonly Filter[];
  /** Parameters of the API that are no filters, or whose filters have other values. */
  query?: Query;
  /** Another text loads the list again. */
  version?: string;
  caption: string;
  columns?: readonly Column<NoInfer<Row>>[];
  /** Shows the rows. Default: a table of the columns. */
  List?: ComponentType<{ caption: string; rows: readonly NoInfer<Row>[] }>;
  keyOf?(row: Row): string;
  /** In the last column, below the title. The function shows what is no dialog. */
  rowActions?: { title: string; actions: readonly (RowAction<Row> | ((row: Row) => ComponentChildren))[] };
  actions?: readonly ListAction[];
  /** Actions on all rows that are chosen. Without it none can be chosen; with it, name a `keyOf`. */
  many?(rows: readonly Row[]): readonly ListAction[];
  /** Without it, a list without rows is a table without rows. */
  empty?: ComponentChildren;
  /** Arguments of the command line that do what an empty list needs. */
  command?: string;
  /** Said above the table. */
  note?(rows: readonly Row[]): ComponentChildren;
  /** Said below a list of one page that has more rows. */
  more?: ComponentChildren;
  hasRefresh?: boolean;
  /** The heading of the page, with the buttons of the actions. */
  heading?: string;
  /** Said below it. */
  above?: ComponentChildren;
  /** The title of a card around the list, with those buttons if there is no heading. */
  card?: string;
  /** Called after a change, which loads the list again. */
  changed?(): void;
}

export function ResourceList<Row extends object>(props: ResourceProps<Row>) {
  const { place, path, limit, filters = [], query = {}, version = "", rowActions, actions = [] } = props;
  const { caption, columns = [], keyOf, many, empty, command, note, more, hasRefresh, changed } = props;
  const { List = Table, heading, above, card } = props;
  const parameter = (name: string) => place?.query.get(name) || null;
  const after = parameter("after");
  const filtered = Object.fromEntries(filters.map(({ name }) => [name, parameter(name)]));
  const isFiltered = Object.values({ ...filtered, ...query }).some((value) => value !== null);
  const wanted = { ...filtered, ...query, after, limit };
  const list = useLoaded(JSON.stringify([path, wanted, version]), (signal) =>
    get<Page<Row>>(path, wanted, signal),
  );
  const choice = useChoice(keyOf);
  const { button, dialog } = useActions(() => {
    choice.clear();
    list.reload();
    changed?.();
  });
  const buttonOf = ({ label, isFor, parts, ...of }: RowAction<Row>, row: Row) =>
    (isFor?.(row) ?? true) && button({ ...of, ...(parts && { parts: parts(row) }) }, label(row), row);
  const shownColumns = [...columns];
  if (rowActions !== undefined) {
    const cell = (row: Row) => (
      <span class="nowrap">
        {rowActions.actions.map((action, index) => (
          <Fragment key={index}>
            {typeof action === "function" ? action(row) : buttonOf(action, row)}{" "}
          </Fragment>
        ))}
      </span>
    );
    shownColumns.push({ title: rowActions.title, cell });
  }
  const buttonsOf = (all: readonly ListAction[]) => all.length > 0 && all.map((each) => button(each));
  const buttons = buttonsOf(actions);
  const shown = (
    <>
      {(filters.length > 0 || hasRefresh) && (
        <div class="filters">
          {filters.map((filter) => (
            <FilterInput key={filter.name} of={filter} value={parameter(filter.name) ?? ""} />
          ))}
          {hasRefresh && <Button onClick={list.reload}>Refresh</Button>}
        </div>
      )}
      <Shown of={list}>
        {({ data, next }) =>
          data.length === 0 && empty !== undefined ? (
            <Empty>
              <p>{empty}</p>
              {command !== undefined && !isFiltered && <code>{`${commandLine} ${command}`}</code>}
            </Empty>
          ) : (
            <>
              {note?.(data)}
              <List
                caption={caption}
                rows={data}
                columns={many ? [choice.column(data), ...shownColumns] : shownColumns}
                {...(keyOf && { keyOf })}
              />
              {many && choice.rows.length > 0 && (
                <section class="buttons chosen" aria-label="Chosen rows">
                  <strong>{choice.rows.length} chosen</strong> {buttonsOf(many(choice.rows))}
                  <Button onClick={choice.clear}>Choose none</Button>
                </section>
              )}
              {place !== undefined && <Pager next={next} isFirst={after === null} />}
              {place === undefined && next !== null && more}
            </>
          )
        }
      </Shown>
    </>
  );
  return (
    <>
      {heading !== undefined && <PageHead title={heading}>{buttons}</PageHead>}
      {heading === undefined && card === undefined && buttons && <p class="buttons above">{buttons}</p>}
      {above}
      {card === undefined ? (
        shown
      ) : (
        <Card title={card} actions={heading === undefined && buttons}>
          {shown}
        </Card>
      )}
      {dialog}
    </>
  );
}

/** Buttons of actions, and the dialog of the one that was pressed. `changed` follows a change. */
export function useActions(changed?: () => void) {
  const [open, setOpen] = useState<ListAction | null>(null);
  const close = (isDone = false) => {
    setOpen(null);
    if (isDone) changed?.();
  };
  /** `json`: what it is about. */
  const button = (of: ListAction, label?: string, json: object | undefined = of.parts?.target) =>
    of.node ?? (
      <Button
        key={of.title}
        action={of.action}
        json={json}
        class={of.look}
        aria-label={label}
        onClick={() => setOpen(of)}
      >
        {of.title}
      </Button>
    );
  const dialog =
    open?.dialog?.(close) ??
    (open?.action && <ActionDialog action={open.action} {...open.parts} close={close} />);
  return { button, dialog };
}

/** Actions that belong to no list. */
export function Actions({ of, changed }: { of: readonly ListAction[]; changed?(): void }) {
  const { button, dialog } = useActions(changed);
  return (
    <>
      {of.map((each) => button(each))}
      {dialog}
    </>
  );
}

/** Changes the path of the page. */
export function FilterInput({ of: filter, value }: { of: Filter; value: string }) {
  const { name, label, isLabelHidden = false, options, as } = filter;
  const input = useRef<HTMLInputElement>(null);
  // Not at each rendering: the list may be loaded while somebody types.
  useLayoutEffect(() => {
    if (input.current !== null) input.current.value = value;
  }, [value]);
  const set = (text: string) => go(withParameters({ [name]: text.trim(), after: null }));
  if (as === "link") {
    return (
      value !== "" && (
        <Button onClick={() => set("")}>
          {label}: {value} ✕
        </Button>
      )
    );
  }
  if (as === "box") {
    return (
      <label for={name}>
        <input
          id={name}
          type="checkbox"
          checked={value === "true"}
          onChange={({ currentTarget }) => set(currentTarget.checked ? "true" : "")}
        />
        {label}
      </label>
    );
  }
  const present = options?.find(([each]) => each === value)?.[0] ?? "";
  return (
    <label for={name}>
      <span class={isLabelHidden ? "hidden" : ""}>{label}</span>
      {options === undefined ? (
        <input
          id={name}
          type="search"
          ref={input}
          onChange={({ currentTarget }) => set(currentTarget.value)}
        />
      ) : (
        <select id={name} value={present} onChange={({ currentTarget }) => set(currentTarget.value)}>
          <Options of={options} />
        </select>
      )}
    </label>
  );
}
