-- The ledger, its receipts and the keys. Amounts are whole micro-credits, times milliseconds since the epoch.
-- The checks repeat what the kernel promises, so that no other writer can break it either. Amounts stay below
-- 2^53, so that JavaScript reads them back exactly.
--
-- journal and usage are tables with a row id of their own and are written at their end only. Their second index
-- begins with the operation or request id, which begins with the time. Clustered by account instead, 512 requests
-- of 10,000 accounts touch six pages each instead of three, and with 600,000 rows made half as many pairs of hold
-- and settlement a second.

create table account (
  id text not null primary key check (id <> ''),
  plan text not null check (plan <> ''),
  seq integer not null check (seq >= 1),
  created_ms integer not null,

  base integer not null,
  base_cap integer not null,
  base_anchor_ms integer not null,
  base_starts_ms integer not null,
  base_ends_ms integer not null,

  overage integer not null,
  overage_cap integer not null,
  overage_anchor_ms integer not null,
  overage_starts_ms integer not null,
  overage_ends_ms integer not null,

  additional integer not null,

  held_base integer not null check (held_base >= 0),
  held_overage integer not null check (held_overage >= 0),
  held_additional integer not null check (held_additional >= 0),
  holds integer not null check (holds >= 0),

  requests_tat_ms real not null,
  tokens_tat_ms real not null,

  constraint base_within_cap check (base >= 0 and base + held_base <= base_cap and base_cap <= 9007199254740991),
  constraint overage_within_cap
    check (overage >= 0 and overage + held_overage <= overage_cap and overage_cap <= 9007199254740991),
  constraint additional_exact check (additional >= 0 and additional + held_additional <= 9007199254740991),
  constraint base_window check (base_starts_ms < base_ends_ms),
  constraint overage_window check (overage_starts_ms < overage_ends_ms)
) strict, without rowid;

create table api_key (
  account text not null references account (id),
  id text not null unique check (id <> ''),
  hash text not null unique check (length(hash) = 64),
  name text,
  last_four text not null check (length(last_four) = 4),
  -- A JSON array of model ids, or of "*".
  models text not null check (json_type(models) = 'array'),
  requests_per_minute integer check (requests_per_minute > 0),
  tokens_per_minute integer check (tokens_per_minute > 0),
  concurrent integer check (concurrent > 0),
  created_ms integer not null,
  expires_ms integer,
  revoked_ms integer,
  last_used_ms integer,
  requests_tat_ms real not null,
  tokens_tat_ms real not null,
  holds integer not null check (holds >= 0),
  primary key (account, id)
) strict, without rowid;

create table hold (
  account text not null references account (id),
  id text not null check (id <> ''),
  key text not null,
  model text not null,
  created_ms integer not null,
  expires_ms integer not null,
  base integer not null check (base >= 0),
  overage integer not null check (overage >= 0),
  additional integer not null check (additional >= 0),
  base_starts_ms integer not null,
  overage_starts_ms integer not null,
  base_past integer not null check (base_past >= 0),
  overage_past integer not null check (overage_past >= 0),
  metered_tokens integer not null check (metered_tokens >= 0),
  prompt_tokens integer not null,
  cached_tokens integer not null check (cached_tokens between 0 and prompt_tokens),
  completion_tokens integer not null,
  reasoning_tokens integer not null check (reasoning_tokens between 0 and completion_tokens),
  price_prompt integer not null check (price_prompt >= 0),
  price_completion integer not null check (price_completion >= 0),
  price_cached_prompt integer not null check (price_cached_prompt >= 0),
  primary key (account, id)
) strict, without rowid;

-- Every commit asks which holds are overdue, and the sweeper asks across accounts.
create index hold_by_expiry on hold (expires_ms);

create table journal (
  account text not null references account (id),
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  kind text not null check (
    kind in ('hold', 'settle', 'void', 'extend', 'expire', 'refresh', 'topup', 'adjust', 'plan', 'open')
  ),
  op text not null check (op <> ''),
  note text,
  base_delta integer not null,
  overage_delta integer not null,
  additional_delta integer not null,
  base_after integer not null check (base_after >= 0),
  overage_after integer not null check (overage_after >= 0),
  additional_after integer not null check (additional_after >= 0),
  primary key (account, seq),
  unique (op, account)
) strict;

create trigger journal_is_never_changed before update on journal
begin select raise(abort, 'journal entries are never changed'); end;

create trigger journal_is_never_deleted before delete on journal
begin select raise(abort, 'journal entries are never deleted'); end;

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
  primary key (account, seq),
  unique (id, account),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint cost_is_priced check (
    cost = (prompt_tokens - cached_tokens) * price_prompt
      + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion
  )
) strict;

create trigger usage_is_final before update on usage when old.ending <> 'expired'
begin select raise(abort, 'a receipt changes only when its hold had expired before the settlement came'); end;

create trigger usage_is_never_deleted before delete on usage
begin select raise(abort, 'receipts are never deleted'); end;
