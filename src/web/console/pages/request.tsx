/** One finished request: why it cost what it cost, whose it is, and credits that make up for it. */
import { adjustCredits } from "../../../actions/credits.ts";
import { creditsIn } from "../../../units.ts";
import { apiPath, get } from "../../shared/api.ts";
import { Charge } from "../../shared/charge.tsx";
import { keyTitle } from "../../shared/key-values.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { Actions, type ListAction } from "../../shared/resource-page.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import type { Key, Page, Receipt } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import type { Account } from "../types.ts";
import { adjustmentOf } from "./account-credits.tsx";

export function RequestPage({ id: typed }: { id: string }) {
  const id = typed.replace(/^chatcmpl-/, "");
  const request = useLoaded(`request ${id}`, async (signal) => {
    const { data } = await get<Page<Receipt>>(apiPath("usage"), { request_id: id }, signal);
    const [first] = data;
    if (first === undefined) return { data };
    const account = await get<Account>(apiPath("accounts", first.account), {}, signal);
    const key = await get<Key>(apiPath("keys", first.key), {}, signal);
    return { data, account, keyName: keyTitle(key) };
  });
  const { data = [], account, keyName = "" } = request.value ?? {};
  const leftMicro = data.reduce((sum, row) => sum + row.cost_micro - row.shortfall_micro - row.memo_micro, 0);
  // Credits are given whole, and for a request at most what was paid.
  const credits = creditsIn(leftMicro);
  const give: ListAction = {
    title: "Give credits for it",
    look: "primary",
    action: adjustCredits,
    parts: {
      target: { account: account?.id ?? "" },
      subject: account?.id ?? "",
      initial: { credits: `${credits || 1}`, reason: `Request ${id}`, request_id: credits ? id : "" },
      preview: adjustmentOf(account?.id ?? ""),
    },
  };
  return (
    <>
      <PageHead
        title={account === undefined ? "Request" : `Request of ${account.owner ?? account.id}`}
        above={account && <Link to={pathTo("accounts", account.id)}>Account {account.id}</Link>}
      >
        {leftMicro > 0 && account?.state !== "closed" && <Actions of={[give]} changed={request.reload} />}
      </PageHead>
      <Shown of={request}>
        {() =>
          data.length === 0 ? (
            <Empty>
              No finished request has the id <code>{id}</code>. One that runs is on the page{" "}
              <Link to={pathTo()}>Overview</Link>, and one that was refused cost nothing.
            </Empty>
          ) : (
            data.map((receipt) => (
              <Card key={receipt.journal_seq} title="Why it cost this">
                <Charge of={receipt} keyName={keyName} />
              </Card>
            ))
          )
        }
      </Shown>
    </>
  );
}
