-- The ledger, its receipts and the keys, in a schema of their own, which the connection names in its search path.
-- Amounts are whole micro-credits, times milliseconds since the epoch. The checks repeat what the kernel promises, so
-- that no other writer can break it either. Amounts stay below 2^53, so that JavaScript reads them back exactly.
--
-- Every key begins with the account, or has it. Names sort by their bytes ("C"), on every machine alike: it is the
-- order in which accounts are locked. Rows that are written often have room beside them, so that a new version of
-- one stays on its page and touches no index.

create table account (
  id text collate "C" not null primary key check (id <> ''),
  plan text not null check (plan <> ''),
  seq bigint not null check (seq >= 1),
  created_ms bigint not null,

  base bigint not null,
  base_cap bigint not null,
  base_anchor_ms bigint not null,
  base_starts_ms bigint not null,
  base_ends_ms bigint not null,

  overage bigint not null,
  overage_cap bigint not null,
  overage_anchor_ms bigint not null,
  overage_starts_ms bigint not null,
  overage_ends_ms bigint not null,

  additional bigint not null,

  held_base bigint not null check (held_base >= 0),
  held_overage bigint not null check (held_overage >= 0),
  held_additional bigint not null check (held_additional >= 0),
  holds bigint not null check (holds >= 0),

  requests_tat_ms double precision not null,
  tokens_tat_ms double precision not null,

  constraint base_within_cap check (base >= 0 and base + held_base <= base_cap and base_cap <= 9007199254740991),
  constraint overage_within_cap
    check (overage >= 0 and overage + held_overage <= overage_cap and overage_cap <= 9007199254740991),
  constraint additional_exact check (additional >= 0 and additional + held_additional <= 9007199254740991),
  constraint base_window check (base_starts_ms < base_ends_ms),
  constraint overage_window check (overage_starts_ms < overage_ends_ms)
) with (fillfactor = 50);

create table api_key (
  account text collate "C" not null references account (id),
  id text collate "C" not null unique check (id <> ''),
  hash text collate "C" not null unique check (length(hash) = 64),
  name text,
  last_four text not null check (length(last_four) = 4),
  -- Model ids, or "*".
  models text[] not null check (array_position(models, null) is null),
  requests_per_minute bigint check (requests_per_minute > 0),
  tokens_per_minute bigint check (tokens_per_minute > 0),
  concurrent bigint check (concurrent > 0),
  created_ms bigint not null,
  expires_ms bigint,
  revoked_ms bigint,
  last_used_ms bigint,
  requests_tat_ms double precision not null,
  tokens_tat_ms double precision not null,
  holds bigint not null check (holds >= 0),
  primary key (account, id)
) with (fillfactor = 50);

create table hold (
  account text collate "C" not null references account (id),
  id text collate "C" not null check (id <> ''),
  key text collate "C" not null,
  model text not null,
  created_ms bigint not null,
  expires_ms bigint not null,
  base bigint not null check (base >= 0),
  overage bigint not null check (overage >= 0),
  additional bigint not null check (additional >= 0),
  base_starts_ms bigint not null,
  overage_starts_ms bigint not null,
  base_past bigint not null check (base_past >= 0),
  overage_past bigint not null check (overage_past >= 0),
  metered_tokens bigint not null check (metered_tokens >= 0),
  prompt_tokens bigint not null,
  cached_tokens bigint not null check (cached_tokens between 0 and prompt_tokens),
  completion_tokens bigint not null,
  reasoning_tokens bigint not null check (reasoning_tokens between 0 and completion_tokens),
  price_prompt bigint not null check (price_prompt >= 0),
  price_completion bigint not null check (price_completion >= 0),
  price_cached_prompt bigint not null check (price_cached_prompt >= 0),
  primary key (account, id)
  -- Rows come and go all the time: what is gone is cleared away by its number, however large the table is.
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Every commit asks which holds of its accounts are overdue, and the sweeper asks across accounts.
create index hold_by_expiry on hold (expires_ms, account, id);

create table journal (
  account text collate "C" not null references account (id),
  seq bigint not null check (seq >= 1),
  at_ms bigint not null,
  kind text not null check (
    kind in ('hold', 'settle', 'void', 'extend', 'expire', 'refresh', 'topup', 'adjust', 'plan', 'open')
  ),
  op text collate "C" not null check (op <> ''),
  note text,
  base_delta bigint not null,
  overage_delta bigint not null,
  additional_delta bigint not null,
  base_after bigint not null check (base_after >= 0),
  overage_after bigint not null check (overage_after >= 0),
  additional_after bigint not null check (additional_after >= 0),
  primary key (account, seq),
  unique (op, account)
);

create table usage (
  account text collate "C" not null references account (id),
  id text collate "C" not null check (id <> ''),
  seq bigint not null check (seq >= 1),
  at_ms bigint not null,
  key text collate "C" not null,
  model text not null,
  ending text not null check (
    ending in ('stop', 'length', 'credits', 'client_gone', 'engine_failed', 'refused', 'shutdown', 'expired')
  ),
  estimated boolean not null,
  prompt_tokens bigint not null,
  cached_tokens bigint not null check (cached_tokens between 0 and prompt_tokens),
  completion_tokens bigint not null,
  reasoning_tokens bigint not null check (reasoning_tokens between 0 and completion_tokens),
  price_prompt bigint not null check (price_prompt >= 0),
  price_completion bigint not null check (price_completion >= 0),
  price_cached_prompt bigint not null check (price_cached_prompt >= 0),
  cost bigint not null,
  base bigint not null check (base >= 0),
  overage bigint not null check (overage >= 0),
  additional bigint not null check (additional >= 0),
  shortfall bigint not null check (shortfall >= 0),
  primary key (account, seq),
  unique (id, account),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint cost_is_priced check (
    cost = (prompt_tokens - cached_tokens) * price_prompt
      + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion
  )
);

create function refuse() returns trigger language plpgsql as $$
begin
  raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation';
end $$;

create trigger journal_is_never_changed before update on journal
  for each row execute function refuse('journal entries are never changed');
create trigger journal_is_never_deleted before delete on journal
  for each row execute function refuse('journal entries are never deleted');
create trigger journal_is_never_emptied before truncate on journal
  for each statement execute function refuse('journal entries are never deleted');

create trigger usage_is_final before update on usage
  for each row when (old.ending <> 'expired')
  execute function refuse('a receipt changes only when its hold had expired before the settlement came');
create trigger usage_is_never_deleted before delete on usage
  for each row execute function refuse('receipts are never deleted');
create trigger usage_is_never_emptied before truncate on usage
  for each statement execute function refuse('receipts are never deleted');

-- A commit sends its writes and its end together: what is not as it was read must stop it on the spot.
create function expect_rows(written bigint, wanted bigint, name text) returns void language plpgsql as $$
begin
  if written <> wanted then
    raise exception 'rows of % that were read under the lock are not there to be written: % of %', name, written, wanted;
  end if;
end $$;
