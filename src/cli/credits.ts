/**
 * `inkwell credits`: top-ups, refunds and adjustments of additional credits. Each id takes effect
 * once.
 */
import { Command } from "commander";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { paymentObject } from "../accounts/operator-objects.ts";
import { type PaymentReport, paymentReportCsv, paymentReportObject } from "../accounts/payment-report.ts";
import { creditActions } from "../actions/credit-runs.ts";
import { addCredits, adjustCredits } from "../actions/credits.ts";
import { flag, optional } from "../actions/field.ts";
import { inkwell } from "../invocation.ts";
import type { ListedPayment } from "../store/store.ts";
import { exactCredits, grouped } from "../units.ts";
import { addAction, withFields } from "./action-command.ts";
import { limit } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { examples } from "./help.ts";

const pageRows = 500;

export function creditsCommand(cli: Cli): Command {
  const credits = new Command("credits").description("add, refund or correct additional credits");
  addCommand(cli, credits);
  addAction(cli, credits, creditActions.refundCredits, {
    about: "take back credits of a payment that was returned, as far as they are not spent",
    remark: ({ balance }, done) => `${done} ${leftText(balance)}`,
  });
  addAction(cli, credits, creditActions.adjustCredits, {
    about: "give or take away promotional credits; each id counts once, for all accounts",
    remark: ({ balance }, done) => `${done} ${leftText(balance)}`,
  });

  credits
    .command("payments")
    .description("list the payments of an account and what was spent and refunded of each, the newest first")
    .argument("<account>", "as account list shows it")
    .option("--limit <rows>", "only the first rows", limit, 100)
    .addHelpText("after", examples(inkwell("credits payments ada")))
    .action((account: string, { limit }: { limit: number }) =>
      cli.withActions(cli.config(), async (actions) => {
        const rows = await paymentsOf(actions, account, limit);
        const payments = rows.map(paymentObject.of);
        cli.print(payments, rows.length === 0 ? "" : table(payments, paymentColumns));
        if (rows.length === 0) cli.remark(`${account} has no payment.`);
      }),
    );

  const report = credits
    .command("report")
    .description("show for a month what was added, spent and refunded of each payment, and what is left")
    .requiredOption("--month <month>", "such as 2027-01, in the time zone of the configuration")
    .option("--csv", "as CSV, with every field")
    .addHelpText(
      "after",
      examples(
        inkwell("credits report --month 2027-01"),
        inkwell("credits report --month 2027-01 --csv > january.csv"),
      ),
    )
    .action(({ month, csv }: { month: string; csv?: boolean }) => {
      if (csv === true && cli.json) report.error("error: it is --csv or --json, not both");
      return cli.withActions(cli.config(), async (actions) =>
        printReport(cli, await actions.paymentReport(month), csv === true),
      );
    });

  return credits;
}

/** Credits that were paid for, or promotional ones: two actions. */
function addCommand(cli: Cli, credits: Command): void {
  const command = credits
    .command("add")
    .description(
      "add credits that were paid for, or promotional credits; each payment counts once, for all accounts",
    );
  const { account, payment_id, credits: amount } = addCredits.input;
  const { reason, expires_at, operation_id } = adjustCredits.input;
  const read = withFields(
    command,
    {
      account,
      credits: amount,
      payment_id: optional(payment_id),
      promotional: optional(
        flag({ about: "credits that nobody has paid for: they are spent first, and cannot be refunded" }),
      ),
      ...{ expires_at, reason: optional(reason), operation_id: optional(operation_id) },
    },
    { args: ["<account>", "<credits>"] },
  );
  command
    .addHelpText(
      "after",
      examples(
        inkwell("credits add ada 50000 --payment inv-2041"),
        inkwell("credits add ada 500 --promotional --expires 2027-01-31"),
      ),
    )
    .action(async () => {
      const { promotional = false, ...json } = read();
      const isPayment = "payment_id" in json;
      if (isPayment === promotional) command.error("error: give either --payment ID or --promotional");
      const isForPromotion = ["expires_at", "reason", "operation_id"].some((name) => name in json);
      if (isPayment && isForPromotion)
        command.error("error: --expires, --reason and --id belong to --promotional");
      if (!isPayment) json.operation_id ??= cli.newOperation("promotion");
      await cli.withActions(cli.config(), async (actions) => {
        const { result, done } = isPayment
          ? await creditActions.addCredits.run(actions, json)
          : await creditActions.adjustCredits.run(actions, { reason: "promotion", ...json });
        cli.print(result, "");
        cli.remark(`${done} ${leftText(result.balance)}`);
      });
    });
}

function leftText({ balances }: { balances: { additional: { credits: number } } }): string {
  return `It has ${grouped(balances.additional.credits)} additional credits now.`;
}
function printReport(cli: Cli, report: PaymentReport, csv: boolean): void {
  const { rows, total, month, timezone, isOver } = report;
  const document = paymentReportObject(report);
  if (csv) cli.host.stdout.write(paymentReportCsv(report));
  else cli.print(document, rows.length === 0 ? "" : table(document.payments, reportColumns));
  if (rows.length === 0) cli.remark(`No payment had credits left in ${month}.`);
  else
    cli.remark(
      `Total: ${exactCredits(total.leftBeforeMicro)} left before, ${exactCredits(total.addedMicro)} added, ${exactCredits(total.spentMicro)} spent, ${exactCredits(total.refundedMicro)} refunded, ${exactCredits(total.leftMicro)} left.`,
    );
  cli.remark(`Month in ${timezone}.${isOver ? "" : " It has not ended, so these figures will change."}`);
}

const reportColumns = columnsOf(
  "payment",
  "payment_id account left_before_micro added_micro spent_micro refunded_micro left_micro",
);

async function paymentsOf(
  actions: OperatorActions,
  account: string,
  limit: number,
): Promise<ListedPayment[]> {
  const rows: ListedPayment[] = [];
  for (;;) {
    const wanted = Math.min(pageRows, limit - rows.length);
    const page = await actions.payments(account, { afterSeq: rows.at(-1)?.seq, limit: wanted });
    rows.push(...page);
    if (page.length < wanted || rows.length === limit) return rows;
  }
}

const paymentColumns = columnsOf("payment", "at amount_micro spent_micro refunded_micro payment_id");
