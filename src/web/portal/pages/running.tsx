/** Running requests that the session sees, with a button that stops one. */

import { stopOwnRequest } from "../../../actions/portal.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { Card } from "../../shared/layout.tsx";
import { type Live, ShownLive, useLive } from "../../shared/live.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
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
  const { open, show, close } = useAction();
  if (isHiddenIfEmpty && open === null && !of.value?.requests.data.length) return null;
  return (
    <Card title="Running requests">
      {open !== null && <ActionDialog action={stopOwnRequest} target={{ request: open }} close={close} />}
      <ShownLive of={of}>
        {({ requests: { data, more } }) =>
          data.length === 0 ? (
            <p class="quiet">Nothing runs now.</p>
          ) : (
            <>
              <Table
                caption="Running requests and the credits that they hold"
                rows={data}
                columns={[
                  ...columnsOf(
                    "runningRequest",
                    "started_at model key prompt_tokens completion_tokens held_micro",
                    { key: ({ key }: { key: string }) => nameOfKey(key) },
                  ),
                  {
                    title: "",
                    cell: ({ id }) => (
                      <button type="button" aria-label={`Stop the request ${id}`} onClick={() => show(id)}>
                        Stop
                      </button>
                    ),
                  },
                ]}
              />
              {more > 0 && <p class="quiet">{wholeNumber(more)} more requests run.</p>}
            </>
          )
        }
      </ShownLive>
    </Card>
  );
}
