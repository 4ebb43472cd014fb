/**
 * The dialog of an action on many rows: a preview of each row, then the progress, which can stop and
 * go on. Links are in this page alone, until they are saved.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { csvOf } from "../../accounts/csv.ts";
import { routeOf } from "../../actions/action.ts";
import { rowsMax } from "../../actions/page-fields.ts";
import { ActionDialog, type ActionProps } from "./action-dialog.tsx";
import { send } from "./api.ts";
import { Button } from "./button.tsx";
import { SaveButton } from "./save-button.tsx";
import { columnsOf, Table } from "./table.tsx";
import type { RowsPage } from "./types.ts";

type Row = RowsPage["data"][number];
/** Adds the rows after those of a page to it, until the end, or until `show` returns false. */
type AskAll = (page: RowsPage, show: (page: RowsPage) => boolean) => Promise<RowsPage>;

/** Of a request that changes something. */
const limit = 5;
const none: RowsPage = { data: [], next: null, total: 0 };

export function RowsDialog(props: ActionProps<RowsPage>) {
  const { action, target } = props;
  const { once, done: sentenceOf = () => "" } = action;
  const { path } = routeOf(action);
  const askWith = (json: object) => async (page: RowsPage, show: (page: RowsPage) => boolean) => {
    do {
      const after = page.next === null ? {} : { after: page.next };
      const more = await send<RowsPage>("POST", path, { ...json, ...after });
      page = { ...more, data: [...page.data, ...more.data] };
    } while (show(page) && page.next !== null);
    return page;
  };
  return (
    <ActionDialog
      {...props}
      preview={async (json) => {
        const id = once === undefined ? {} : { [once]: "preview" };
        const ask = askWith({ ...target, ...json, ...id, dry_run: true });
        const page = await ask(none, () => true);
        return <Rows rows={page.data} text={`Nothing has changed yet. ${sentenceOf(page)}`} />;
      }}
      run={(json) => <Run askAll={askWith({ ...json, limit })} sentenceOf={sentenceOf} />}
      requests={(json) => [[action, { ...json, limit: rowsMax }]]}
    />
  );
}

function Run({ askAll, sentenceOf }: { askAll: AskAll; sentenceOf(page: RowsPage): string }) {
  const [page, setPage] = useState(none);
  const [isOn, setOn] = useState(true);
  const [problem, setProblem] = useState("");
  const isStopped = useRef(false);
  const stop = () => {
    isStopped.current = true;
  };
  useEffect(() => {
    if (!isOn) return;
    isStopped.current = false;
    const show = (now: RowsPage) => {
      setPage(now);
      return !isStopped.current;
    };
    askAll(page, show)
      .then(() => setProblem(""))
      .catch((error: Error) => setProblem(error.message))
      .finally(() => setOn(false));
    return stop;
  }, [isOn]);
  const { data, next, total } = page;
  return (
    <>
      <Rows rows={data} text={`${sentenceOf(page)} ${problem}`} />
      {(next !== null || data.length === 0) && (
        <p class="actions">
          <progress value={data.length} max={total || 1} aria-label="Progress" /> {data.length} of {total}
          <Button onClick={() => (isOn ? stop() : setOn(true))}>{isOn ? "Stop" : "Go on"}</Button>
        </p>
      )}
    </>
  );
}

const columns = columnsOf("rowResult", "account result text line");
const isRefused = ({ result }: Row) => Number(result === "refused");

function Rows({ rows, text }: { rows: readonly Row[]; text: string }) {
  const links = rows.flatMap(({ account, email, link }) => (link === null ? [] : [[account, email, link]]));
  const load = async () => new Blob([csvOf([["account", "email", "link"], ...links])]);
  return (
    <>
      <p role="status">{text}</p>
      {links.length > 0 && (
        <p class="notice warn">
          The links are shown nowhere else: save them before you close this.{" "}
          <SaveButton text="Save the links" file="links.csv" load={load} />
        </p>
      )}
      <Table
        caption="Rows"
        rows={rows.toSorted((one, other) => isRefused(other) - isRefused(one))}
        columns={rows[0]?.line === null ? columns.slice(0, -1) : columns}
        keyOf={({ account }) => account}
      />
    </>
  );
}
