-- A commit ends a bounded number of overdue holds of its accounts (docs/decisions/0028-overdue-holds.md), so it finds those
-- of one account without walking through those of all others. The sweeper still asks across accounts.

create index hold_by_account on hold (account, expires_ms);
