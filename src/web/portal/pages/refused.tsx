/** The last requests that were refused: by whom or what, and what to do. */
import { apiPath } from "../../shared/api.ts";
import { ResourceList } from "../../shared/resource-page.tsx";
import { pathTo } from "../../shared/router.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { RefusedRequest } from "../types.ts";

export function refusedPath(): string {
  return `${pathTo("requests")}?show=refused`;
}

export function RefusedRequests({ nameOfKey }: { nameOfKey(id: string): string }) {
  return (
    <ResourceList<RefusedRequest>
      path={apiPath("refusals")}
      limit={50}
      hasRefresh
      caption="Refused requests"
      columns={columnsOf("refusedRequest", "at refused_by message model? key request_id", {
        key: ({ key }: RefusedRequest) => nameOfKey(key),
      })}
      note={() => <p class="quiet above">Refused requests cost nothing. {memory}</p>}
      empty={<>No request was refused. {memory}</>}
    />
  );
}

const memory =
  "Each server of the service remembers its own since its start, at most 50 of an account, without their text.";
