/** Running requests that the session sees, with a button that stops one. */

import { stopOwnRequest } from "../../../actions/portal.ts";
import { apiPath } from "../../shared/api.ts";
import { Card } from "../../shared/layout.tsx";
import { type Live, ShownLive, useLive } from "../../shared/live.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { type ListAction, useActions } from "../../shared/resource-page.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import type { PortalLive } from "../types.ts";

/** The state of the account, which is asked for more often while requests run. */
export function useRunning(): Live<PortalLive> {
  return useLive<PortalLive>(apiPath("live"), ({ requests }) => requests.data.length > 0);
}

interface RunningProps {
  of: Live<PortalLive>;
  nameOfKey(id: string): string;
  /** It is not shown while nothing runs. */
  isHiddenIfEmpty?: boolean;
}

export function RunningRequests({ of, nameOfKey, isHiddenIfEmpty = false }: RunningProps) {
  const { button, dialog } = useActions();
  if (isHiddenIfEmpty && !dialog && !of.value?.requests.data.length) return null;
  return (
    <Card title="Running requests">
      {dialog}
      <ShownLive of={of}>
        {({ requests: { data, more } }) => (
          <>
            <Table
              caption="Running requests and the credits that they hold"
              rows={data}
              columns={[
                ...columnsOf(
                  "runningRequest",
                  "started_at model key prompt_tokens completion_tokens held_micro",
                  {
                    key: ({ key }: { key: string }) => nameOfKey(key),
                  },
                ),
                { title: "", cell: ({ id }) => button(stop(id), `Stop the request ${id}`) },
              ]}
              empty={<p class="quiet">Nothing runs now.</p>}
            />
            {more > 0 && <p class="quiet">{wholeNumber(more)} more requests run.</p>}
          </>
        )}
      </ShownLive>
    </Card>
  );
}

function stop(request: string): ListAction {
  return { title: "Stop", action: stopOwnRequest, parts: { target: { request } } };
}
