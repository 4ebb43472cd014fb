/** The receipts of an account. */
import type { AccountTabProps } from "./account-tab.ts";
import { Receipts } from "./receipts.tsx";

export function AccountReceipts({ account: { id }, place }: AccountTabProps) {
  return <Receipts place={place} account={id} />;
}
