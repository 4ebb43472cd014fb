-- Where the receipts of a key and a model stand in the journal of their account: the first and the last number of each
-- day. Lists of receipts with a filter read these spans. The steps that sum charges write them (docs/ledger.md).

create table receipt_span (
  account text collate "C" not null,
  key text collate "C" not null,
  model text collate "C" not null,
  -- Days since 1970, in UTC: that of the receipt's own time.
  day bigint not null,
  first_seq bigint not null,
  last_seq bigint not null,
  primary key (account, key, model, day),
  constraint span_has_a_receipt check (first_seq <= last_seq)
);

-- The last charge that is in its span. A process of an earlier build may sum further ones.
alter table usage_summed add column spanned bigint not null default 0;

update usage_summed set spanned = through;

insert into receipt_span (account, key, model, day, first_seq, last_seq)
select account, key, model, at_ms / 86400000, min(seq), max(seq)
from charge where rowid <= (select spanned from usage_summed)
group by 1, 2, 3, 4;
