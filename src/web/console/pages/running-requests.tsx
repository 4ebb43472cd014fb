/** Running requests of all nodes with the credits that they hold, and stopping one. */

import { ActionDialog, useAction } from "../../shared/action.tsx";
import { apiPath, get, send } from "../../shared/api.ts";
import { Card } from "../../shared/layout.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Shown } from "../../shared/states.tsx";
import { Table } from "../../shared/table.tsx";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Amount, Time } from "../../shared/values.tsx";
import type { Hold, Page } from "../types.ts";

const rowsMax = 20;

/** `account` limits the list to one account. */
export function RunningRequests({ account }: { account?: string }) {
  const { open, show, hide } = useAction<string>();
  const holds = useLoaded(`running ${account}`, (signal) =>
    get<Page<Hold>>("/admin/holds", { account, limit: rowsMax }, signal),
  );
  return (
    <Card
      title="Running requests"
      actions={
        <button type="button" onClick={holds.reload}>
          Refresh
        </button>
      }
    >
      <Shown of={holds}>
        {({ data, next }) =>
          data.length === 0 ? (
            <p class="quiet">Nothing runs now.</p>
          ) : (
            <>
              <Table
                caption="Running requests and the credits that they hold"
                rows={data}
                keyOf={(hold) => hold.request_id}
                columns={[
                  {
                    title: "Account",
                    cell: (hold) => <Link to={pathTo("accounts", hold.account)}>{hold.account}</Link>,
                  },
                  { title: "Model", cell: (hold) => hold.model },
                  { title: "Started", cell: (hold) => <Time at={hold.created_at} /> },
                  {
                    title: "Held credits",
                    isNumber: true,
                    cell: (hold) => <Amount micro={hold.held_micro} />,
                  },
                  {
                    title: "Request",
                    cell: (hold) => (
                      <button
                        type="button"
                        aria-label={`Stop the request ${hold.request_id}`}
                        title={hold.request_id}
                        onClick={() => show(hold.request_id)}
                      >
                        Stop
                      </button>
                    ),
                  },
                ]}
              />
              {next !== null && <p class="quiet">The first {rowsMax} requests are shown.</p>}
            </>
          )
        }
      </Shown>
      {open !== null && (
        <ActionDialog
          title="Stop a running request"
          kind="stop"
          submit="Stop the request"
          isDangerous
          intro={
            <p>
              The request <code>{open}</code> ends now. Its client gets the error <code>request_stopped</code>
              , and pays for the tokens so far.
            </p>
          }
          send={async () => {
            const { stopped } = await send<{ stopped: boolean }>("POST", apiPath("requests", open, "stop"));
            return {
              done: stopped ? "The request is stopped." : "Another node stops the request within seconds.",
            };
          }}
          close={(isDone) => {
            hide();
            if (isDone) holds.reload();
          }}
        />
      )}
    </Card>
  );
}
