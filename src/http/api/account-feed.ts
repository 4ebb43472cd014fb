/** The feed of accounts, one for the pages of the console and the portal together. */
import { type LiveAccount, LiveAccounts, type LiveTopic } from "../../accounts/live-accounts.ts";
import type { Jobs } from "../../jobs.ts";
import type { Store } from "../../store/store.ts";
import { Feed } from "./feed.ts";

export type AccountFeed = Feed<LiveTopic, LiveAccount>;

export function accountFeed(jobs: Jobs, store: Store): AccountFeed {
  const accounts = new LiveAccounts(store);
  return new Feed({
    ...{ jobs, name: "show_accounts", failure: "the live state of accounts could not be read" },
    read: (topics, ageMsMax) => accounts.read(topics, ageMsMax),
  });
}
