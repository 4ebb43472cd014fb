/** Running requests of all nodes with the credits that they hold, and stopping one. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { stopRequest } from "../../../actions/service.ts";
import { ActionButton } from "../../shared/action-button.tsx";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { Card } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { columnsOf, Table } from "../../shared/table.tsx";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { RunningRequest } from "../types.ts";

/** Of a list with one request, which moves nothing below it. */
const heightPx = 88;

/** `total`: number of requests, of which `rows` may be a part. */
export function RunningRequests(props: {
  rows: readonly RunningRequest[];
  total: number;
  hasAccount?: boolean;
}) {
  const { rows, total, hasAccount = true } = props;
  const [open, setOpen] = useState<RunningRequest | null>(null);
  const list = useRef<HTMLDivElement>(null);
  // It keeps the height of its longest state: requests that begin and end move nothing for long.
  useLayoutEffect(() => {
    if (list.current !== null) list.current.style.minHeight = `${list.current.offsetHeight}px`;
  });
  return (
    <Card title="Running requests">
      <div ref={list} style={{ minHeight: `${heightPx}px` }}>
        {rows.length === 0 ? (
          <p class="quiet">Nothing runs now.</p>
        ) : (
          <Table
            caption="Running requests and the credits that they hold"
            rows={rows}
            columns={columnsOf(
              "runningRequest",
              `${hasAccount ? "account model" : "model"} state since completion_tokens held_micro request_id`,
              {
                account: ({ account }: RunningRequest) => account !== null && <AccountLink id={account} />,
                state: (row: RunningRequest) => <Badge text={row.here ? row.state : "on another node"} />,
                completion_tokens: (row: RunningRequest) => (
                  <span title={row.here ? "of the answer so far" : "of the answer, at the last checkpoint"}>
                    {wholeNumber(row.completion_tokens)}
                  </span>
                ),
                request_id: (row: RunningRequest) => (
                  <ActionButton
                    action={stopRequest}
                    aria-label={`Stop the request ${row.request_id}`}
                    title={row.request_id}
                    onClick={() => setOpen(row)}
                  >
                    Stop
                  </ActionButton>
                ),
              },
            )}
          />
        )}
        {rows.length < total && (
          <p class="quiet">
            The oldest {wholeNumber(rows.length)} of {wholeNumber(total)} requests are shown.
          </p>
        )}
      </div>
      {open !== null && (
        <ActionDialog
          action={stopRequest}
          target={{ request: open.request_id }}
          intro={
            <p>
              The request <code>{open.request_id}</code> of {open.account} to {open.model} ends now. Its
              client gets the error <code>request_stopped</code>, and pays for the tokens so far.
            </p>
          }
          close={() => setOpen(null)}
        />
      )}
    </Card>
  );
}
