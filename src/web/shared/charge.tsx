/** Why a request cost what it cost: tokens x price = credits, and the buckets that paid. */
import { decimalsOf, wholeNumber } from "./numbers.ts";
import { endingCell, explainEnding } from "./receipts.tsx";
import { columnsOf, factsOf, Table } from "./table.tsx";
import { exactTime } from "./times.ts";
import type { Receipt } from "./types.ts";
import { Amount, Facts } from "./values.tsx";

interface Line {
  name: string;
  tokens: number;
  /** Credits per million tokens, which is micro-credits per token. */
  price: number;
}

export function Charge({ of: receipt, keyName }: { of: Receipt; keyName: string }) {
  const lines = linesOf(receipt);
  const decimals = Math.max(...[receipt.cost_micro, ...lines.map(microOf)].map(decimalsOf));
  const payments = [
    ["Base credits", receipt.base_micro],
    ["Overage credits", receipt.overage_micro],
    ["Additional credits", receipt.additional_micro],
    ["Not paid: the account had no more credits", receipt.shortfall_micro],
  ] as const;
  return (
    <>
      <div class="intro">
        {endingCell(receipt)} {explainEnding(receipt)}
        {receipt.estimated && " The token counts are estimated, because the server reported none."}
        {receipt.note !== null && ` Note: ${receipt.note}.`}
        {receipt.late && " This entry corrects an earlier one of the same request."}
      </div>
      <Table
        caption="Calculation of the cost"
        rows={lines}
        keyOf={({ name }) => name}
        columns={[
          { title: "Tokens", cell: ({ name }) => name },
          { title: "Count", isNumber: true, cell: ({ tokens }) => wholeNumber(tokens) },
          { title: "× price per million", isNumber: true, cell: ({ price }) => wholeNumber(price) },
          {
            title: "= credits",
            isNumber: true,
            cell: (line) => <Amount micro={microOf(line)} decimals={decimals} />,
          },
        ]}
        foot={
          <tfoot>
            <tr>
              <td colSpan={3}>Cost in credits</td>
              <td class="number">
                <Amount micro={receipt.cost_micro} decimals={decimals} />
              </td>
            </tr>
          </tfoot>
        }
      />
      <h3>Paid by</h3>
      <Facts
        rows={payments
          .filter(([, micro]) => micro !== 0)
          .map(([name, micro]) => [name, <Amount key={name} micro={micro} />] as const)}
      />
      {receipt.cost_micro === 0 && <p class="quiet">The request cost nothing.</p>}
      {receipt.memo_micro > 0 && (
        <p>
          <Amount micro={receipt.memo_micro} /> credits were given back later.
        </p>
      )}
      <h3>Request</h3>
      <Facts
        rows={factsOf(
          receipt,
          columnsOf("receipt", "finished_at model key request_id", {
            finished_at: () => exactTime(Date.parse(receipt.finished_at)),
            key: () => keyName,
          }),
        )}
      />
    </>
  );
}

const microOf = ({ tokens, price }: Line) => tokens * price;

function linesOf(receipt: Receipt): Line[] {
  const { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens } = receipt;
  const lines: Line[] = [
    { name: "Prompt", tokens: prompt_tokens - cached_tokens, price: receipt.price_prompt },
    { name: "Prompt, cached", tokens: cached_tokens, price: receipt.price_cached_prompt },
    {
      name: reasoning_tokens > 0 ? `Answer (${wholeNumber(reasoning_tokens)} of them thinking)` : "Answer",
      tokens: completion_tokens,
      price: receipt.price_completion,
    },
  ];
  return lines.filter(({ name, tokens }) => tokens !== 0 || name !== "Prompt, cached");
}
