/** Of a finished request: the state in which it ended, what that means for its cost, and the cost. */
import { Link } from "./router.tsx";
import type { Receipt } from "./types.ts";
import { Amount, Badge } from "./values.tsx";

const endings: Readonly<Record<string, readonly [state: string, tone: string, meaning: string]>> = {
  stop: ["finished", "good", "The model finished its answer."],
  length: ["finished", "good", "The answer ended at the limit of tokens or of the context."],
  credits: ["credits used up", "warn", "The answer ended because the credits were used up."],
  cap: ["cap reached", "warn", "The answer ended because a spending cap was reached."],
  client_gone: ["aborted", "neutral", "The client ended the request. It paid for the tokens until then."],
  stopped: ["stopped", "neutral", "{by} stopped the request. The tokens until then are paid."],
  engine_failed: ["failed", "bad", "The model failed. The tokens that were delivered are paid."],
  refused: ["failed", "bad", "The model refused the request."],
  shutdown: ["failed", "bad", "The service stopped during the answer. The tokens until then are paid."],
  expired: ["failed", "bad", "The request did not end in time. The last known tokens are paid."],
};

/** By the kind of the actor. */
const stoppers: Readonly<Record<string, string>> = { person: "A person", key: "A key of the account" };

export function explainEnding({ ending, stopped_by: by }: Receipt): string {
  const meaning = endings[ending]?.[2] ?? "";
  if (ending === "stopped" && by === null)
    return "The account was suspended, closed or past its end. The tokens until then are paid.";
  return meaning.replace("{by}", stoppers[by?.split(":", 1)[0] ?? ""] ?? "The operator");
}

export function endingCell(receipt: Receipt) {
  const [state, tone] = endings[receipt.ending] ?? [receipt.ending, "neutral"];
  return (
    <span title={explainEnding(receipt)}>
      <Badge text={receipt.late ? "corrected" : state} tone={receipt.late ? "neutral" : tone} />
    </span>
  );
}

/** In tables. */
export function costCell(row: Receipt, decimals = 0) {
  return (
    <>
      <Amount micro={row.cost_micro} decimals={decimals} />
      {row.memo_micro > 0 && (
        <div class="quiet">
          <Amount micro={row.memo_micro} decimals={decimals} /> given back
        </div>
      )}
    </>
  );
}

/** Of a period, perhaps with filters. */
export function NoneFinished() {
  return (
    <>
      No request has finished in this selection.{" "}
      <Link to={`${location.pathname}?from=all`}>Show all requests</Link>
    </>
  );
}
