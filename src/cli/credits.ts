/**
 * `inkwell credits`: top-ups, refunds and adjustments of additional credits. Each id takes effect
 * once.
 */
import type { Command } from "commander";
import type { AdjustmentJson, TopupJson } from "../accounts/operator-objects.ts";
import type { PaymentReportJson } from "../accounts/payment-report.ts";
import { addCredits, adjustCredits, refundCredits } from "../actions/credits.ts";
import { type Fields, optional, optionally } from "../actions/field.ts";
import { listPayments, reportPayments } from "../actions/views.ts";
import { exactCredits, grouped } from "../units.ts";
import { actionCommand, commandGroup, commandWith, listCommand } from "./action-command.ts";
import type { BalanceJson } from "./balance.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";

export function creditsCommand(cli: Cli): Command {
  return commandGroup("credits", "add, refund or correct additional credits", [
    addCommand(cli),
    actionCommand(cli, refundCredits, {
      about: "take back credits of a payment that was returned, as far as they are not spent",
      remark: ({ balance }, done) => `${done} ${leftText(balance)}`,
    }),
    actionCommand(cli, adjustCredits, {
      about: "give or take away promotional credits; each id counts once, for all accounts",
      remark: ({ balance }, done) => `${done} ${leftText(balance)}`,
    }),
    listCommand(cli, listPayments, {
      about: "list the payments of an account and what was spent and refunded of each, the newest first",
      limit: 100,
      columns: columnsOf("payment", "at amount_micro spent_micro refunded_micro payment_id"),
      none: ({ account }) => `${account} has no payment.`,
    }),
    reportCommand(cli),
  ]);
}

/** Credits that were paid for, or promotional ones: two actions. */
function addCommand(cli: Cli): Command {
  const { account, payment_id, credits: amount } = addCredits.input;
  const { reason, expires_at, operation_id } = adjustCredits.input;
  const fields = {
    account,
    credits: amount,
    payment_id: optional(payment_id),
    promotional: optionally.flag({
      about: "credits that nobody has paid for: they are spent first, and cannot be refunded",
    }),
    expires_at,
    reason: optional(reason),
    operation_id: optional(operation_id),
  };
  return commandWith(
    {
      words: addCredits.cli,
      about:
        "add credits that were paid for, or promotional credits; each payment counts once, for all accounts",
      fields,
      examples: [
        "credits add ada 50000 --payment inv-2041",
        "credits add ada 500 --promotional --expires 2027-01-31",
      ],
    },
    async ({ promotional = false, ...json }, command) => {
      const isPayment = "payment_id" in json;
      if (isPayment === promotional) command.error("error: give either --payment ID or --promotional");
      const isForPromotion = ["expires_at", "reason", "operation_id"].some((name) => name in json);
      if (isPayment && isForPromotion)
        command.error("error: --expires, --reason and --id belong to --promotional");
      if (!isPayment) json.operation_id ??= cli.newOperation("promotion");
      if (isPayment) return said(cli, addCredits, await cli.api.get<TopupJson>(addCredits, json));
      const promotion = await cli.api.get<AdjustmentJson>(adjustCredits, { reason: "promotion", ...json });
      said(cli, adjustCredits, promotion);
    },
  );
}

function said<Result extends { balance: BalanceJson }>(
  cli: Cli,
  { done }: { done?(result: Result): string },
  result: Result,
): void {
  cli.print(result, "");
  cli.remark(`${done?.(result)} ${leftText(result.balance)}`);
}

function leftText({ balances }: BalanceJson): string {
  return `It has ${grouped(balances.additional.credits)} additional credits now.`;
}

function reportCommand(cli: Cli): Command {
  const { month } = reportPayments.input;
  const fields: Fields = { month, csv: csvField };
  return commandWith(
    {
      words: "credits report",
      about: "show for a month what was added, spent and refunded of each payment, and what is left",
      fields,
      examples: ["credits report --month 2027-01", "credits report --month 2027-01 --csv > january.csv"],
    },
    async ({ month, csv = false }, command) => {
      if (csv === true && cli.json) command.error("error: it is --csv or --json, not both");
      const report = await cli.api.get<PaymentReportJson>(reportPayments, { month });
      if (csv === true) {
        const { paymentReportCsv } = await import("../accounts/payment-report.ts");
        await cli.write(paymentReportCsv(report));
      } else
        cli.print(report, report.payments.length === 0 ? "" : table(report.payments, reportColumns, cli));
      const { payments, total, timezone, over } = report;
      const amount = (name: keyof typeof total) => exactCredits(total[name]);
      cli.remark(
        payments.length === 0
          ? `No payment had credits left in ${month}.`
          : `Total: ${amount("left_before_micro")} left before, ${amount("added_micro")} added, ${amount("spent_micro")} spent, ${amount("refunded_micro")} refunded, ${amount("left_micro")} left.`,
      );
      cli.remark(`Month in ${timezone}.${over ? "" : " It has not ended, so these figures will change."}`);
    },
  );
}

export const csvField = optionally.flag({ about: "as CSV, with every field" });

const reportColumns = columnsOf(
  "payment",
  "payment_id account left_before_micro added_micro spent_micro refunded_micro left_micro",
);
