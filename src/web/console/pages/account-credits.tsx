/** Changes of additional credits: top-up, adjustment and refund. */
import { useState } from "preact/hooks";
import { ActionDialog } from "../../shared/action.tsx";
import { apiPath, get, send } from "../../shared/api.ts";
import type { Values } from "../../shared/field.tsx";
import { wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import { newOperationId } from "../../shared/operation-id.ts";
import type { Balance } from "../../shared/types.ts";
import { ShortAmount } from "../../shared/values.tsx";
import type { Account, Refund } from "../types.ts";

interface Props {
  account: Account;
  close(isDone: boolean): void;
}

export function TopUp({ account: { id }, close }: Props) {
  const [payment] = useState(() => newOperationId("console"));
  return (
    <ActionDialog
      title={`Top up ${id}`}
      kind="topup"
      submit="Add the credits"
      fields={[
        { name: "credits", label: "Credits", kind: "number", isRequired: true, min: 1 },
        {
          ...{ name: "payment_id", label: "Payment id", isRequired: true, initial: payment },
          hint: "The number of the invoice or payment, if there is one. Each payment id adds credits once in the installation.",
        },
      ]}
      send={async (values) => {
        const body = { payment_id: values.payment_id?.trim(), credits: creditsIn(values) };
        const { again } = await send<{ again: boolean }>("POST", apiPath("accounts", id, "topups"), body);
        return {
          done: again
            ? "This payment had been added before. Nothing has changed."
            : `${wholeNumber(body.credits)} credits were added to ${id}.`,
        };
      }}
      close={close}
    />
  );
}

export function AdjustCredits({ account: { id }, close }: Props) {
  return (
    <ActionDialog
      title={`Adjust the credits of ${id}`}
      kind="adjust"
      submit="Adjust the credits"
      intro={<p>Corrects the additional credits. The journal keeps the reason.</p>}
      fields={[
        {
          ...{ name: "credits", label: "Credits", kind: "number", isRequired: true },
          hint: "A negative number removes credits: -200.",
        },
        { name: "reason", label: "Reason", isRequired: true },
      ]}
      preview={async (values) => {
        const { balances } = await get<Balance>(apiPath("accounts", id, "balance"));
        const before = balances.additional.credits;
        const change = creditsIn(values);
        return (
          <p>
            Additional credits change from {wholeNumber(before)} to {wholeNumber(before + change)} (whole
            credits, rounded down).
            {before + change < 0 && " This is more than the account has, and will be refused."}
          </p>
        );
      }}
      send={async (values, operationId) => {
        const body = { operation_id: operationId, credits: creditsIn(values), reason: values.reason?.trim() };
        await send("POST", apiPath("accounts", id, "adjustments"), body);
        return { done: `The credits of ${id} were adjusted by ${wholeNumber(body.credits)}.` };
      }}
      close={close}
    />
  );
}

export function RefundCredits({ account: { id }, close }: Props) {
  return (
    <ActionDialog
      title={`Refund a payment of ${id}`}
      kind="refund"
      submit="Take the credits back"
      isDangerous
      intro={
        <p>
          Takes back credits of a payment that you have returned. Credits that were spent, or that running
          requests hold, are not taken. The payment ids are in the journal.
        </p>
      }
      fields={[
        { name: "payment_id", label: "Payment id", isRequired: true },
        { name: "credits", label: "Credits", kind: "number", isRequired: true, min: 1 },
      ]}
      preview={async (values) => {
        const { balances } = await get<Balance>(apiPath("accounts", id, "balance"));
        return (
          <p>
            {wholeNumber(creditsIn(values))} credits of {values.payment_id} are taken back, at most the{" "}
            {wholeNumber(balances.additional.credits)} additional credits that are left.
          </p>
        );
      }}
      send={async (values, operationId) => {
        const refund = await send<Refund>("POST", apiPath("accounts", id, "refunds"), {
          refund_id: operationId,
          payment_id: values.payment_id?.trim(),
          credits: creditsIn(values),
        });
        return {
          done: "The refund is recorded.",
          result: (
            <p>
              <ShortAmount micro={refund.refunded_micro} /> credits were taken back.{" "}
              {refund.rest_micro > 0 && (
                <>
                  <ShortAmount micro={refund.rest_micro} /> credits were spent or are held, and were not
                  taken.
                </>
              )}
            </p>
          ),
        };
      }}
      close={close}
    />
  );
}

function creditsIn(values: Values): number {
  return wholeNumberIn(values.credits ?? "") ?? 0;
}
