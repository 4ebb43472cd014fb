/** The properties of each tab of an account. */
import type { Place } from "../../shared/router.tsx";
import type { Account } from "../types.ts";

export interface AccountTabProps {
  account: Account;
  /** Number of changes that this page has made; what they change is loaded again. */
  changes: number;
  place: Place;
}
