/** Changes of additional credits: promotional credits and refund. */
import { useState } from "preact/hooks";
import { refundCredits } from "../../../actions/credits.ts";
import { creditsIn, exactCredits, microOf } from "../../../units.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath, get } from "../../shared/api.ts";
import { LoadedDialog } from "../../shared/form-dialog.tsx";
import type { FieldOf } from "../../shared/form-fields.ts";
import { wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import { newOperationId } from "../../shared/operation-id.ts";
import { dateOf } from "../../shared/times.ts";
import type { Balance, Page } from "../../shared/types.ts";
import { Facts } from "../../shared/values.tsx";
import type { Payment } from "../types.ts";

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
  return (
    <LoadedDialog
      title={`Refund a payment of ${id}`}
      of={`payments of ${id}`}
      load={(signal) =>
        get<Page<Payment>>(apiPath("accounts", id, "payments"), { limit: paymentsMax }, signal)
      }
      close={close}
    >
      {({ data }) => <RefundForm id={id} payments={data} close={close} />}
    </LoadedDialog>
  );
}

function RefundForm(props: { id: string; payments: readonly Payment[]; close(isDone: boolean): void }) {
  const { id, close } = props;
  // The list may be loaded again while the form is open.
  const [payments] = useState(props.payments);
  const [refundId] = useState(() => newOperationId("refund"));
  const offered = payments.filter((payment) => creditsIn(microLeftOf(payment)) > 0);
  const leftOf = (id: unknown) =>
    payments.filter(({ payment_id }) => payment_id === id).map(microLeftOf)[0] ?? null;
  const idIn = (choice: string) => (choice === typed ? "" : choice.slice(chosenPrefix.length));
  const restOf = (choice: string) => {
    const leftMicro = leftOf(idIn(choice));
    return leftMicro === null ? "" : String(creditsIn(leftMicro));
  };
  const choice: FieldOf = {
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
    fills: (choice, { payment = "", credits = "" }) => ({
      payment_id: idIn(choice),
      ...((credits === "" || credits === restOf(payment)) && { credits: restOf(choice) }),
    }),
  };
  const own: Readonly<Record<string, Partial<FieldOf>>> = {
    payment_id: { isShown: ({ payment }) => payment === typed },
    credits: {
      check: ({ payment_id: of = "", credits = "" }) => {
        const leftMicro = leftOf(of.trim());
        if (leftMicro === null || Number(wholeNumberIn(credits)) <= creditsIn(leftMicro)) return null;
        return `${exactCredits(leftMicro)} credits of ${of} are neither spent nor refunded: enter at most ${creditsIn(leftMicro)}.`;
      },
    },
    reason: { isRequired: true },
  };
  return (
    <ActionDialog
      action={refundCredits}
      target={{ account: id, refund_id: refundId }}
      subject={id}
      intro={
        <p>
          {refundCredits.form?.intro}
          {offered.length === 0 && " No payment of this account has credits left to refund."}
        </p>
      }
      inputs={(inputs) => [choice, ...inputs.map((input) => ({ ...input, ...own[input.name] }))]}
      preview={async ({ payment_id: of, credits }) => {
        const { balances } = await get<Balance>(apiPath("accounts", id, "balance"));
        const rows = [
          [`Left of ${of}`, leftOf(of)],
          ["Additional credits", microOf(balances.additional.credits)],
          ["All credits", microOf(balances.total.credits)],
        ] as const;
        const change = (micro: number) =>
          `from ${exactCredits(micro)} to ${exactCredits(micro - microOf(Number(credits)))}`;
        return <Facts rows={rows.map(([name, micro]) => [name, micro === null ? null : change(micro)])} />;
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
