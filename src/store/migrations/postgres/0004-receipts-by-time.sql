-- Receipts are added in the order of their times, so a few pages of this index tell where those of a time can be. It costs
-- nearly nothing to keep, and a list by `from` and `to` no longer goes through all receipts before them.

create index usage_by_time on usage using brin (at_ms) with (pages_per_range = 32, autosummarize = on);
