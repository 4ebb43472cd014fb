-- A commit ends a bounded number of overdue holds of its accounts (docs/decisions/0028-overdue-holds.md), so it finds those
-- of one account without walking through those of all others. The sweeper still asks across accounts; its index has
-- the time alone, so that no commit is planned with it.

drop index hold_by_expiry;
create index hold_by_expiry on hold (expires_ms);
create index hold_by_account on hold (account, expires_ms, id);
