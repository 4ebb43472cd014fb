/** `inkwell balance`: the balance of an account, as `GET /v1/balance` shows it to clients. */
import type { Command } from "commander";
import type { PlanPreviewJson } from "../accounts/operator-objects.ts";
import { ApiError } from "../actions/api-error.ts";
import { showAccountLive } from "../actions/views.ts";
import { exactCredits, grouped, type MicroCredits } from "../units.ts";
import { commandWith } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { table } from "./format.ts";
import { capLines } from "./key-text.ts";

export type BalanceJson = PlanPreviewJson["after"]["balance"];

/** What `GET /admin/accounts/{account}/live` has of a balance. */
interface LiveJson {
  balance: BalanceJson;
  held_micro: MicroCredits;
  spending_caps: PlanPreviewJson["after"]["spending_caps"];
}

export function balanceCommand(cli: Cli): Command {
  return commandWith(
    {
      words: "balance <account>",
      about: "show what an account has left, as GET /v1/balance does",
      fields: showAccountLive.input,
    },
    async ({ account }) => {
      const live = await cli.api.get<LiveJson>(showAccountLive, { account });
      const { balance, held_micro, spending_caps: caps } = live;
      const head = `Account ${account}, plan ${balance.plan}`;
      cli.print(balance, [head, balanceTable(balance), ...capLines(caps)].join("\n\n"));
      remarkHeld(cli, held_micro);
    },
  );
}

/** Returns the balance of an account, or why it cannot be read. */
export async function fetchBalance(cli: Cli, account: string) {
  try {
    return { ...(await cli.api.get<LiveJson>(showAccountLive, { account })), problem: null };
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "balance_unavailable") throw error;
    return { balance: null, spending_caps: [], held_micro: 0, problem: error.message };
  }
}

/** Explains why some of the credits shown cannot be spent now. */
export function remarkHeld(cli: Cli, heldMicro: MicroCredits): void {
  if (heldMicro === 0) return;
  cli.remark(
    `Running requests hold ${exactCredits(heldMicro)} of these credits. ` +
      "When a request ends, it is charged for what it used, and the rest is returned.",
  );
}

interface BucketRow {
  name: string;
  left: { credits: number; percent?: number };
  cap?: { credits: number };
  window?: { refreshesAt: string };
}

export function balanceTable({ balances, caps, baseWindow, overageWindow }: BalanceJson): string {
  const rows: BucketRow[] = [
    { name: "base", left: balances.base, cap: caps.base, window: baseWindow },
    { name: "overage", left: balances.overage, cap: caps.overage, window: overageWindow },
    { name: "additional", left: balances.additional },
    { name: "total", left: balances.total, cap: caps.total },
  ];
  return table(rows, [
    { head: "BUCKET", cell: ({ name }) => name },
    { head: "CREDITS", isNumber: true, cell: ({ left }) => grouped(left.credits) },
    { head: "OF", isNumber: true, cell: ({ cap }) => (cap === undefined ? "" : grouped(cap.credits)) },
    {
      head: "LEFT",
      isNumber: true,
      cell: ({ left: { percent } }) => (percent === undefined ? "" : `${percent.toFixed(2)} %`),
    },
    { head: "REFRESHES", cell: ({ window }) => window?.refreshesAt ?? "" },
  ]);
}
