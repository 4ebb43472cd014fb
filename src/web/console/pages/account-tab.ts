/** What each tab of an account gets. */
import type { Place } from "../../shared/router.tsx";
import type { Account } from "../types.ts";

export interface AccountTabProps {
  account: Account;
  place: Place;
  /** Loads the account again after a change. */
  reload(): void;
}
