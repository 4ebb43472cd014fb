/** Running requests of all nodes with the credits that they hold, and stopping one. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { stopRequest } from "../../../actions/service.ts";
import { Card } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { type ListAction, useActions } from "../../shared/resource-page.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import { Badge } from "../../shared/values.tsx";
import { accountCell } from "../account-link.tsx";
import type { RunningRequest } from "../types.ts";

/** Of a list with one request, which moves nothing below it. */
const heightPx = 88;

/** `total`: number of requests, of which `rows` may be a part. */
export function RunningRequests(props: {
  rows: readonly RunningRequest[];
  total: number;
  hasAccount?: boolean;
  counts?: string;
}) {
  const { rows, total, hasAccount = true, counts } = props;
  const { button, dialog } = useActions();
  const list = useRef<HTMLDivElement>(null);
  // It keeps the height of its longest state: requests that begin and end move nothing for long.
  useLayoutEffect(() => {
    if (list.current !== null) list.current.style.minHeight = `${list.current.offsetHeight}px`;
  });
  return (
    <Card title="Running requests" actions={counts}>
      <div ref={list} style={{ minHeight: `${heightPx}px` }}>
        <Table
          empty={<p class="quiet">Nothing runs now.</p>}
          caption="Running requests and the credits that they hold"
          rows={rows}
          columns={columnsOf(
            "runningRequest",
            `${hasAccount ? "account model" : "model"} since state completion_tokens held_micro request_id`,
            {
              account: accountCell,
              since: ({ since }: RunningRequest) => (
                <time dateTime={since}>{lengthOf(Date.now() - Date.parse(since))}</time>
              ),
              state: (row: RunningRequest) => <Badge text={row.here ? row.state : "on another node"} />,
              completion_tokens: (row: RunningRequest) => (
                <span title={row.here ? "of the answer so far" : "of the answer, at the last checkpoint"}>
                  {wholeNumber(row.completion_tokens)}
                </span>
              ),
              request_id: (row: RunningRequest) => (
                <span title={row.request_id}>{button(stop(row), `Stop the request ${row.request_id}`)}</span>
              ),
            },
          )}
        />
        {rows.length < total && (
          <p class="quiet">
            The oldest {wholeNumber(rows.length)} of {wholeNumber(total)} requests are shown.
          </p>
        )}
      </div>
      {dialog}
    </Card>
  );
}

function stop({ request_id: request, account, model }: RunningRequest): ListAction {
  const intro = (
    <p>
      The request <code>{request}</code> of {account} to {model} ends now. Its client gets the error{" "}
      <code>request_stopped</code>, and pays for the tokens so far.
    </p>
  );
  return { title: "Stop", action: stopRequest, parts: { target: { request }, intro } };
}

/** Returns `12 s`, or `3 min`. */
function lengthOf(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  return seconds < 100 ? `${seconds} s` : `${wholeNumber(Math.floor(seconds / 60))} min`;
}
