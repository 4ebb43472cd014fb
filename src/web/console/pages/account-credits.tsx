/** Changes of additional credits: top-up, promotional credits and refund. */
import { useState } from "preact/hooks";
import { creditsIn, exactCredits } from "../../../units.ts";
import { ActionDialog, FailedDialog } from "../../shared/action.tsx";
import { apiPath, get, send } from "../../shared/api.ts";
import type { Values } from "../../shared/field.tsx";
import { wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import { newOperationId } from "../../shared/operation-id.ts";
import { dayOf } from "../../shared/times.ts";
import type { Balance, Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { ShortAmount } from "../../shared/values.tsx";
import type { Account, Payment, Refund } from "../types.ts";

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
        const body = { payment_id: values.payment_id?.trim(), credits: typedCredits(values) };
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

/** Whether the credits of the form are given, and not taken away. */
function isGiven(values: Values): boolean {
  return typedCredits(values) >= 0;
}

export function AdjustCredits({ account: { id }, close }: Props) {
  return (
    <ActionDialog
      title={`Adjust the credits of ${id}`}
      kind="adjust"
      submit="Adjust the credits"
      intro={
        <p>
          Gives promotional credits, or takes them away. Credits that were paid for are taken back by a
          refund. The journal keeps the reason.
        </p>
      }
      fields={[
        {
          ...{ name: "credits", label: "Credits", kind: "number", isRequired: true },
          hint: "A negative number takes promotional credits away: -200.",
        },
        { name: "reason", label: "Reason", isRequired: true },
        {
          ...{ name: "expires_at", label: "Last day" },
          hint: "The credits end with this day: 2027-01-31. Without one they never end.",
          isShown: isGiven,
        },
        {
          ...{ name: "request_id", label: "Request" },
          hint: "The id of a request that the credits make up for, at most what was paid for it.",
          isShown: isGiven,
        },
      ]}
      preview={async (values) => {
        const { balances } = await get<Balance>(apiPath("accounts", id, "balance"));
        const before = balances.additional.credits;
        const change = typedCredits(values);
        return (
          <p>
            Additional credits change from {wholeNumber(before)} to {wholeNumber(before + change)} (whole
            credits, rounded down).
            {change < 0 && " Only promotional credits that no request holds can be taken."}
          </p>
        );
      }}
      send={async (values, operationId) => {
        const body = {
          operation_id: operationId,
          credits: typedCredits(values),
          reason: values.reason?.trim(),
          ...(isGiven(values) && {
            expires_at: values.expires_at?.trim() || undefined,
            request_id: values.request_id?.trim() || undefined,
          }),
        };
        await send("POST", apiPath("accounts", id, "adjustments"), body);
        return { done: `The credits of ${id} were adjusted by ${wholeNumber(body.credits)}.` };
      }}
      close={close}
    />
  );
}

/** Stands for an id that is typed. */
const typed = "typed";
/** Begins the choice of a payment from the list, so that its id may be any text. */
const chosenPrefix = "id:";
/** Offered in the form. The id of an older payment can be typed. */
const paymentsMax = 200;

export function RefundCredits({ account: { id }, close }: Props) {
  const title = `Refund a payment of ${id}`;
  const payments = useLoaded(`payments of ${id}`, (signal) =>
    get<Page<Payment>>(apiPath("accounts", id, "payments"), { limit: paymentsMax }, signal),
  );
  if (payments.value === null) {
    const failed = { title, retry: payments.reload, close: () => close(false) };
    return payments.error && <FailedDialog {...failed} error={payments.error} />;
  }
  return <RefundForm {...{ id, title, payments: payments.value.data, close }} />;
}

function RefundForm(props: {
  id: string;
  title: string;
  payments: readonly Payment[];
  close: Props["close"];
}) {
  const { id, title, payments, close } = props;
  // The list may be loaded again while the form is open.
  const [offered] = useState(() => payments.filter((payment) => creditsLeftOf(payment) > 0));
  const chosenIn = (values: Values) =>
    values.payment === typed ? values.payment_id?.trim() : values.payment?.slice(chosenPrefix.length);
  const restOf = (choice: string) => {
    const payment = offered.find(({ payment_id }) => choice === chosenPrefix + payment_id);
    return payment === undefined ? "" : String(creditsLeftOf(payment));
  };
  return (
    <ActionDialog
      title={title}
      kind="refund"
      submit="Take the credits back"
      isDangerous
      intro={
        <p>
          Takes back credits of a payment that you have returned. Credits that were spent, or that running
          requests hold, are not taken.
          {offered.length === 0 && " No payment of this account has credits left to refund."}
        </p>
      }
      fields={[
        {
          ...{ name: "payment", label: "Payment", kind: "select", isRequired: true },
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
          ...{ name: "payment_id", label: "Payment id", isRequired: true },
          isShown: ({ payment }) => payment === typed,
        },
        { name: "credits", label: "Credits", kind: "number", isRequired: true, min: 1 },
      ]}
      preview={async (values) => (
        <p>
          {wholeNumber(typedCredits(values))} credits of {chosenIn(values)} are taken back, if so many of it
          are not spent.
        </p>
      )}
      send={async (values, operationId) => {
        const refund = await send<Refund>("POST", apiPath("accounts", id, "refunds"), {
          refund_id: operationId,
          payment_id: chosenIn(values),
          credits: typedCredits(values),
        });
        return {
          done: "The refund is recorded.",
          result: (
            <p>
              <ShortAmount micro={refund.refunded_micro} /> credits were taken back.{" "}
              {refund.rest_micro > 0 && (
                <>
                  <ShortAmount micro={refund.rest_micro} /> credits are held by running requests, and can be
                  refunded when these have ended.
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

/** Returns the whole credits that are neither spent nor refunded. */
function creditsLeftOf({ amount_micro, refunded_micro, spent_micro }: Payment): number {
  return creditsIn(amount_micro - refunded_micro - spent_micro);
}

function paymentText({ payment_id, at, amount_micro, ...payment }: Payment): string {
  const spent = payment.spent_micro === 0 ? "" : `, ${exactCredits(payment.spent_micro)} spent`;
  const refunded = payment.refunded_micro === 0 ? "" : `, ${exactCredits(payment.refunded_micro)} refunded`;
  return `${payment_id}: ${exactCredits(amount_micro)} credits, ${dayOf(Date.parse(at))}${spent}${refunded}`;
}

function typedCredits(values: Values): number {
  return wholeNumberIn(values.credits ?? "") ?? 0;
}
