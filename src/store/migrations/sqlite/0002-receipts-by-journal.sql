-- Receipts without a key of their own by account and number. It had a place for each account, so nearly every settlement
-- wrote a page for it, and the more of them the larger the ledger (docs/decisions/0014-what-a-request-costs.md). A
-- receipt has the number of the journal entry that ended it: the journal finds the receipts of an account, in order.

drop trigger usage_is_final;
drop trigger usage_is_never_deleted;
alter table usage rename to usage_before;

create table usage (
  account text not null references account (id),
  id text not null check (id <> ''),
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  key text not null,
  model text not null,
  ending text not null check (
    ending in ('stop', 'length', 'credits', 'client_gone', 'engine_failed', 'refused', 'shutdown', 'expired')
  ),
  estimated integer not null check (estimated in (0, 1)),
  prompt_tokens integer not null,
  cached_tokens integer not null check (cached_tokens between 0 and prompt_tokens),
  completion_tokens integer not null,
  reasoning_tokens integer not null check (reasoning_tokens between 0 and completion_tokens),
  price_prompt integer not null check (price_prompt >= 0),
  price_completion integer not null check (price_completion >= 0),
  price_cached_prompt integer not null check (price_cached_prompt >= 0),
  cost integer not null,
  base integer not null check (base >= 0),
  overage integer not null check (overage >= 0),
  additional integer not null check (additional >= 0),
  shortfall integer not null check (shortfall >= 0),
  unique (id, account),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint cost_is_priced check (
    cost = (prompt_tokens - cached_tokens) * price_prompt
      + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion
  )
) strict;

insert into usage select * from usage_before order by rowid;
drop table usage_before;

create trigger usage_is_final before update on usage when old.ending <> 'expired'
begin select raise(abort, 'a receipt changes only when its hold had expired before the settlement came'); end;

create trigger usage_is_never_deleted before delete on usage
begin select raise(abort, 'receipts are never deleted'); end;
