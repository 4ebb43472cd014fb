/** Changes of additional credits: promotional credits and refund. */
import { useState } from "preact/hooks";
import { refundCredits } from "../../../actions/credits.ts";
import { creditsIn, exactCredits, microOf } from "../../../units.ts";
import { apiPath, get, send } from "../../shared/api.ts";
import type { Values } from "../../shared/field.tsx";
import { FormDialog, LoadedDialog } from "../../shared/form-dialog.tsx";
import { wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import { dateOf } from "../../shared/times.ts";
import type { Balance, Page } from "../../shared/types.ts";
import { Facts } from "../../shared/values.tsx";
import type { Payment, Refund } from "../types.ts";

/** The preview of promotional credits that are given or taken. */
export const adjustmentOf = (id: string) => async (json: Readonly<Record<string, unknown>>) => {
  const { balances } = await get<Balance>(apiPath("accounts", id, "balance"));
  const before = balances.additional.credits;
  const change = Number(json.credits);
  return (
    <p>
      Additional credits change from {wholeNumber(before)} to {wholeNumber(before + change)} (whole credits,
      rounded down).
      {change < 0 && " Only promotional credits that no request holds can be taken."}
    </p>
  );
};

/** Stands for an id that is typed. */
const typed = "typed";
/** Begins the choice of a payment from the list, so that its id may be any text. */
const chosenPrefix = "id:";
/** Offered in the form. The id of an older payment can be typed. */
const paymentsMax = 200;

export function RefundCredits({ id, close }: { id: string; close(isDone: boolean): void }) {
  const form = { title: `Refund a payment of ${id}`, close };
  return (
    <LoadedDialog
      {...form}
      of={`payments of ${id}`}
      load={(signal) =>
        get<Page<Payment>>(apiPath("accounts", id, "payments"), { limit: paymentsMax }, signal)
      }
    >
      {({ data }) => <RefundForm {...form} id={id} payments={data} />}
    </LoadedDialog>
  );
}

function RefundForm(props: {
  id: string;
  title: string;
  payments: readonly Payment[];
  close(isDone: boolean): void;
}) {
  const { id, title, close } = props;
  // The list may be loaded again while the form is open.
  const [payments] = useState(props.payments);
  const offered = payments.filter((payment) => creditsIn(microLeftOf(payment)) > 0);
  const chosenIn = (values: Values) =>
    values.payment === typed ? values.payment_id?.trim() : values.payment?.slice(chosenPrefix.length);
  const leftOf = (id: string | undefined) =>
    payments.filter(({ payment_id }) => payment_id === id).map(microLeftOf)[0] ?? null;
  const restOf = (choice: string) => {
    const leftMicro = leftOf(choice.slice(chosenPrefix.length));
    return leftMicro === null ? "" : String(creditsIn(leftMicro));
  };
  return (
    <FormDialog
      title={title}
      kind="refund"
      submit={refundCredits.form?.submit ?? ""}
      isDangerous
      intro={
        <p>
          {refundCredits.form?.intro}
          {offered.length === 0 && " No payment of this account has credits left to refund."}
        </p>
      }
      fields={[
        {
          name: "payment",
          label: "Payment",
          kind: "select",
          isRequired: true,
          ...(offered.length === 0 && { initial: typed }),
          isShown: () => offered.length > 0,
          options: [
            ["", "Choose a payment"],
            ...offered.map((each) => [chosenPrefix + each.payment_id, paymentText(each)] as const),
            [typed, "Another payment, by its id"],
          ],
          // A number that was typed stays.
          fills: (choice, { payment = "", credits = "" }) =>
            credits === "" || credits === restOf(payment) ? { credits: restOf(choice) } : {},
        },
        {
          name: "payment_id",
          label: "Payment id",
          isRequired: true,
          isShown: ({ payment }) => payment === typed,
        },
        {
          name: "credits",
          label: "Credits",
          kind: "number",
          isRequired: true,
          min: 1,
          check: (values) => {
            const leftMicro = leftOf(chosenIn(values));
            if (leftMicro === null || typedCredits(values) <= creditsIn(leftMicro)) return null;
            return `${exactCredits(leftMicro)} credits of ${chosenIn(values)} are neither spent nor refunded: enter at most ${creditsIn(leftMicro)}.`;
          },
        },
        { name: "reason", label: "Reason", isRequired: true },
      ]}
      preview={async (values) => {
        const { balances } = await get<Balance>(apiPath("accounts", id, "balance"));
        const rows = [
          [`Left of ${chosenIn(values)}`, leftOf(chosenIn(values))],
          ["Additional credits", microOf(balances.additional.credits)],
          ["All credits", microOf(balances.total.credits)],
        ] as const;
        const takenMicro = microOf(typedCredits(values));
        const change = (micro: number) =>
          `from ${exactCredits(micro)} to ${exactCredits(micro - takenMicro)}`;
        return <Facts rows={rows.map(([name, micro]) => [name, micro === null ? null : change(micro)])} />;
      }}
      send={async (values, operationId) => {
        const refund = await send<Refund>("POST", apiPath("accounts", id, "refunds"), {
          refund_id: operationId,
          payment_id: chosenIn(values),
          credits: typedCredits(values),
          reason: values.reason,
        });
        return { done: refundCredits.done?.(refund) ?? "" };
      }}
      close={close}
    />
  );
}

/** Returns what is neither spent nor refunded. */
function microLeftOf({ amount_micro, refunded_micro, spent_micro }: Payment): number {
  return amount_micro - refunded_micro - spent_micro;
}

function paymentText({ payment_id, at, amount_micro, ...payment }: Payment): string {
  const spent = payment.spent_micro === 0 ? "" : `, ${exactCredits(payment.spent_micro)} spent`;
  const refunded = payment.refunded_micro === 0 ? "" : `, ${exactCredits(payment.refunded_micro)} refunded`;
  return `${payment_id}: ${exactCredits(amount_micro)} credits, ${dateOf(Date.parse(at))}${spent}${refunded}`;
}

function typedCredits(values: Values): number {
  return wholeNumberIn(values.credits ?? "") ?? 0;
}
