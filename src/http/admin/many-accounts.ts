/** How the service does what operators do with many accounts: by the actions of one account. */
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { accountActions } from "../../actions/account-runs.ts";
import { bindFor } from "../../actions/bind.ts";
import { creditActions } from "../../actions/credit-runs.ts";
import { changePlans, changeStates, importAccountList, topUpAccounts } from "../../actions/many.ts";
import { refusalOf } from "../../ledger/refusals.ts";
import { creditsIn, grouped, microOf, shortTime } from "../../units.ts";
import { importRows, importRowsOf } from "./account-import.ts";
import { pageOfRows, type RowResult, refusedRow, rowsPage, runChecked } from "./account-rows.ts";

const bind = bindFor<OperatorActions>();

type Row = Omit<RowResult, "account">;
interface Many {
  accounts: readonly string[];
  dryRun?: boolean | undefined;
  limit?: number | undefined;
  after?: string | undefined;
}

/** `check`: what a row would do. Each throws the refusal of its account. */
async function rowsOf(
  { accounts, dryRun = false, ...place }: Many,
  check: (account: string) => Promise<Row>,
  apply: (account: string) => Promise<Row>,
) {
  const run = dryRun ? check : apply;
  const rowOf = async (account: string): Promise<RowResult> => {
    try {
      return { account, ...(await run(account)) };
    } catch (error) {
      return refusedRow(account, error);
    }
  };
  return await pageOfRows(
    accounts,
    place,
    (account) => account,
    (rows) => Promise.all(rows.map(rowOf)),
  );
}

async function openAccount(operator: OperatorActions, account: string) {
  const found = await operator.account(account);
  if (found.state === "closed") throw refusalOf({ kind: "account_closed", account });
  return found;
}

export const manyActions = {
  topUpAccounts: bind(topUpAccounts, rowsPage, async (operator, { credits, paymentId, ...many }) =>
    rowsOf(
      many,
      async (account) => {
        await openAccount(operator, account);
        const { additionalMicro } = await operator.balance(account);
        const after = grouped(creditsIn(additionalMicro + microOf(credits)));
        const text = `additional credits ${grouped(creditsIn(additionalMicro))} → ${after}`;
        return { result: "updated", text, credits };
      },
      async (account) => {
        const json = { account, credits, payment_id: `${paymentId}-${account}` };
        const { result, done } = await runChecked(creditActions.addCredits, operator, json);
        if (result.again) return { result: "unchanged", text: done ?? "" };
        return { result: "updated", text: done ?? "", credits };
      },
    ),
  ),
  changePlans: bind(changePlans, rowsPage, async (operator, { operationId, plan, at, ...many }) =>
    rowsOf(
      many,
      async (account) => {
        const { result } = await runChecked(accountActions.previewPlan, operator, { account, plan, at });
        const { before, after, effective_at: effectiveAt } = result;
        const isSame = before.plan === after.plan;
        const text = isSame ? `plan ${plan}` : `plan ${before.plan} → ${plan}, ${shortTime(effectiveAt)}`;
        return { result: isSame ? "unchanged" : "updated", text };
      },
      async (account) => {
        const json = { account, operation_id: `${operationId}-${account}`, plan, at };
        const { result, done } = await runChecked(accountActions.changePlan, operator, json);
        const isSo = [result.plan, result.next_plan].includes(plan);
        return { result: isSo ? "updated" : "unchanged", text: done ?? "" };
      },
    ),
  ),
  changeStates: bind(changeStates, rowsPage, async (operator, { operationId, state, ...many }) =>
    rowsOf(
      many,
      async (account) => {
        const found = await openAccount(operator, account);
        if (found.state === state) return { result: "unchanged", text: `is ${state}` };
        return { result: "updated", text: `${found.state} → ${state}` };
      },
      async (account) => {
        const json = { account, operation_id: `${operationId}-${account}`, state };
        const { result, done } = await runChecked(accountActions.changeState, operator, json);
        return { result: result.state === state ? "updated" : "unchanged", text: done ?? "" };
      },
    ),
  ),
  importAccountList: bind(importAccountList, rowsPage, async (operator, input) => {
    const { csv, contacts, invite = "none", dryRun = false, ...place } = input;
    if (invite !== "none") operator.invitations.requireSender(invite === "mail");
    const options = { dryRun, updates: contacts === "replace", invite };
    return await pageOfRows(
      importRowsOf(csv),
      place,
      ({ line }) => String(line),
      (rows) => importRows(operator, rows, options),
    );
  }),
};
