-- Grants record why an account has credits, and charges record what was paid from them. The account row is a cache of
-- both.
--
-- Before this file runs, the plans of the configuration are in plan_version, and every account's plan is among them.
-- Foreign keys are off while it runs, because tables that others refer to are made anew.

create table credit_grant (
  account text not null references account (id),
  seq integer not null check (seq >= 1),
  bucket text not null check (bucket in ('base', 'overage', 'additional')),
  cause text not null check (
    cause in ('open', 'window', 'plan', 'close', 'reversal', 'carried_over', 'payment', 'duplicate', 'refund', 'adjustment')
  ),
  at_ms integer not null,
  amount integer not null check (amount >= 0 or cause in ('refund', 'adjustment')),
  -- The id of the payment, refund or adjustment.
  ref text,
  payment text,
  plan text,
  version integer,
  anchor_ms integer,
  starts_ms integer,
  ends_ms integer,
  since integer,
  spent integer check (spent >= 0),
  held integer check (held >= 0),
  primary key (account, seq, bucket),
  constraint window_is_complete check (
    case bucket when 'additional'
      then plan is null and starts_ms is null and since is null and spent is null and held is null
      else plan is not null and anchor_ms is not null and starts_ms is not null and ends_ms is not null
        and starts_ms < ends_ms and since is not null and since <= seq and spent is not null and held is not null
        and (version is not null or cause = 'close') end
  )
) strict, without rowid;

-- A payment counts once in the installation, and so does a refund.
create unique index grant_by_ref on credit_grant (ref) where cause = 'payment';
create unique index grant_by_refund on credit_grant (ref) where cause = 'refund';
create index grant_by_payment on credit_grant (payment) where payment is not null;

insert into credit_grant (account, seq, bucket, cause, at_ms, amount, plan, version, anchor_ms, starts_ms, ends_ms, since, spent, held)
select a.id, a.seq, 'base', 'carried_over', j.at_ms, a.base_cap, a.plan, v.version, a.base_anchor_ms, a.base_starts_ms,
  a.base_ends_ms, a.seq, a.base_cap - a.base - a.held_base, a.held_base
from account a
join journal j on j.account = a.id and j.seq = a.seq
join plan_version v on v.plan = a.plan and v.version = 1
union all
select a.id, a.seq, 'overage', 'carried_over', j.at_ms, a.overage_cap, a.plan, v.version, a.overage_anchor_ms,
  a.overage_starts_ms, a.overage_ends_ms, a.seq, a.overage_cap - a.overage - a.held_overage, a.held_overage
from account a
join journal j on j.account = a.id and j.seq = a.seq
join plan_version v on v.plan = a.plan and v.version = 1;

-- The first account that was credited with a payment keeps it. The audit lists the others.
insert into credit_grant (account, seq, bucket, cause, at_ms, amount, ref)
select j.account, j.seq, 'additional',
  case when j.kind = 'adjust' then 'adjustment'
    when row_number() over (partition by j.op order by j.at_ms, j.rowid) = 1 then 'payment' else 'duplicate' end,
  j.at_ms, j.additional_delta,
  case j.kind when 'adjust' then substr(j.op, length('adjust:') + 1) else substr(j.op, length('payment:') + 1) end
from journal j where j.kind in ('topup', 'adjust');

create trigger grant_is_never_changed before update on credit_grant
begin select raise(abort, 'grants are never changed'); end;

create trigger grant_is_never_deleted before delete on credit_grant
begin select raise(abort, 'grants are never deleted'); end;

create table hold_after (
  account text not null references account (id),
  id text not null check (id <> ''),
  key text not null,
  model text not null,
  created_ms integer not null,
  expires_ms integer not null,
  base integer not null check (base >= 0),
  overage integer not null check (overage >= 0),
  additional integer not null check (additional >= 0),
  taken_seq integer not null check (taken_seq >= 1),
  -- A JSON array of what was taken before the last grant of base or overage, or null.
  earlier text check (json_type(earlier) = 'array'),
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

-- The grants that are carried over are the present windows. Credits that a hold took from an older window move to
-- `earlier`, with a number before those grants.
insert into hold_after
select h.account, h.id, h.key, h.model, h.created_ms, h.expires_ms,
  case when h.base_starts_ms = a.base_starts_ms then h.base else 0 end,
  case when h.overage_starts_ms = a.overage_starts_ms then h.overage else 0 end,
  h.additional, a.seq,
  case when h.base_past > 0 or h.overage_past > 0 or h.base > 0 and h.base_starts_ms <> a.base_starts_ms
      or h.overage > 0 and h.overage_starts_ms <> a.overage_starts_ms
    then json_array(json_object('seq', 0,
      'base', h.base_past + case when h.base_starts_ms = a.base_starts_ms then 0 else h.base end,
      'overage', h.overage_past + case when h.overage_starts_ms = a.overage_starts_ms then 0 else h.overage end)) end,
  h.metered_tokens, h.prompt_tokens, h.cached_tokens, h.completion_tokens, h.reasoning_tokens,
  h.price_prompt, h.price_completion, h.price_cached_prompt
from hold h join account a on a.id = h.account;

drop table hold;
alter table hold_after rename to hold;
create index hold_by_expiry on hold (expires_ms);
create index hold_by_account on hold (account, expires_ms);

create table account_after (
  id text not null primary key check (id <> ''),
  plan text not null check (plan <> ''),
  next_plan text,
  state text not null check (state in ('active', 'suspended', 'closed')),
  ends_ms integer,
  seq integer not null check (seq >= 1),
  created_ms integer not null,

  -- Credits of the grant - spent - held.
  base integer not null,
  base_cap integer not null check (base_cap between 0 and 9007199254740991),
  base_held integer not null check (base_held >= 0),
  -- The plan at the start of the window, and its version then.
  base_plan text not null,
  base_version integer not null,
  base_every text not null,
  base_anchor_ms integer not null,
  base_starts_ms integer not null,
  base_ends_ms integer not null,
  base_grant integer not null,
  base_since integer not null,

  overage integer not null,
  overage_cap integer not null check (overage_cap between 0 and 9007199254740991),
  overage_held integer not null check (overage_held >= 0),
  overage_plan text not null,
  overage_version integer not null,
  overage_every text not null,
  overage_anchor_ms integer not null,
  overage_starts_ms integer not null,
  overage_ends_ms integer not null,
  overage_grant integer not null,
  overage_since integer not null,

  -- A JSON array of windows that plan changes closed before their planned end, or null.
  kept text check (json_type(kept) = 'array'),

  additional integer not null,
  additional_held integer not null check (additional_held >= 0),
  holds integer not null check (holds >= 0),
  -- The cost of the open holds at their last checkpoints.
  used integer not null check (used >= 0),

  requests_tat_ms real not null,
  tokens_tat_ms real not null,
  tokens_limit integer,

  constraint base_within_cap check (base + base_held <= base_cap),
  constraint overage_within_cap check (overage + overage_held <= overage_cap),
  constraint additional_exact check (additional >= 0 and additional + additional_held <= 9007199254740991),
  constraint base_window check (base_starts_ms < base_ends_ms),
  constraint overage_window check (overage_starts_ms < overage_ends_ms),
  constraint grants_are_written check (
    base_since <= base_grant and base_grant <= seq and overage_since <= overage_grant and overage_grant <= seq
  )
) strict, without rowid;

insert into account_after
select a.id, a.plan, null, 'active', null, a.seq, a.created_ms,
  a.base, a.base_cap, a.held_base, a.plan, v.version, v.base_every, a.base_anchor_ms, a.base_starts_ms, a.base_ends_ms, a.seq, a.seq,
  a.overage, a.overage_cap, a.held_overage, a.plan, v.version, v.overage_every, a.overage_anchor_ms, a.overage_starts_ms,
  a.overage_ends_ms, a.seq, a.seq,
  null, a.additional, a.held_additional, a.holds, coalesce((
    select sum((h.prompt_tokens - h.cached_tokens) * h.price_prompt + h.cached_tokens * h.price_cached_prompt
      + h.completion_tokens * h.price_completion)
    from hold h where h.account = a.id
  ), 0), a.requests_tat_ms, a.tokens_tat_ms, v.tokens_per_minute
from account a join plan_version v on v.plan = a.plan and v.version = 1;

drop table account;
alter table account_after rename to account;

create table api_key_after (
  account text not null references account (id),
  id text not null unique check (id <> ''),
  hash text not null unique check (length(hash) = 64),
  old_hash text unique check (length(old_hash) = 64),
  old_until_ms integer,
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
  tokens_limit integer,
  holds integer not null check (holds >= 0),
  held integer not null check (held >= 0),
  used integer not null check (used >= 0),
  budget integer check (budget >= 0),
  budget_every text,
  budget_anchor_ms integer,
  budget_starts_ms integer,
  budget_ends_ms integer,
  budget_spent integer check (budget_spent >= 0),
  -- Journal number of the account from which charges count in the window.
  budget_since integer not null,
  primary key (account, id),
  constraint budget_is_complete check (
    case when budget is null
      then budget_every is null and budget_anchor_ms is null and budget_starts_ms is null and budget_ends_ms is null
        and budget_spent is null
      else budget_every is not null and budget_anchor_ms is not null and budget_starts_ms is not null
        and budget_ends_ms is not null and budget_starts_ms < budget_ends_ms and budget_spent is not null end
  )
) strict, without rowid;

insert into api_key_after
select k.account, k.id, k.hash, null, null, k.name, k.last_four, k.models, k.requests_per_minute, k.tokens_per_minute,
  k.concurrent, k.created_ms, k.expires_ms, k.revoked_ms, k.last_used_ms, k.requests_tat_ms, k.tokens_tat_ms,
  k.tokens_per_minute, k.holds, coalesce(h.held, 0), coalesce(h.used, 0), null, null, null, null, null, null, 0
from api_key k left join (
  select h.account, h.key, sum(h.base + h.overage + h.additional + coalesce(json_extract(h.earlier, '$[0].base'), 0)
    + coalesce(json_extract(h.earlier, '$[0].overage'), 0)) as held,
    sum((h.prompt_tokens - h.cached_tokens) * h.price_prompt + h.cached_tokens * h.price_cached_prompt
      + h.completion_tokens * h.price_completion) as used
  from hold h group by h.account, h.key
) h on h.account = k.account and h.key = k.id;

drop table api_key;
alter table api_key_after rename to api_key;

drop trigger journal_is_never_changed;
drop trigger journal_is_never_deleted;
alter table journal rename to journal_before;

create table journal (
  account text not null references account (id),
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  -- SQLite makes a table of a long list for each row, in 2 us. The usual kinds are found before.
  kind text not null check (
    kind = 'hold' or kind = 'settle' or kind = 'extend' or kind in ('open', 'refresh', 'plan', 'topup', 'void',
      'expire', 'adjust', 'refund', 'suspend', 'resume', 'end', 'close', 'key', 'reverse')
  ),
  op text not null check (op <> ''),
  note text,
  base_delta integer not null,
  overage_delta integer not null,
  additional_delta integer not null,
  base_after integer not null,
  overage_after integer not null,
  additional_after integer not null check (additional_after >= 0),
  primary key (account, seq),
  unique (op, account)
) strict;

insert into journal select * from journal_before order by rowid;
drop table journal_before;

create trigger journal_is_never_changed before update on journal
begin select raise(abort, 'journal entries are never changed'); end;

create trigger journal_is_never_deleted before delete on journal
begin select raise(abort, 'journal entries are never deleted'); end;

create table charge (
  account text not null references account (id),
  id text not null check (id <> ''),
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  key text not null,
  model text not null,
  ending text not null check (
    ending = 'stop' or ending = 'length'
      or ending in ('credits', 'client_gone', 'engine_failed', 'refused', 'shutdown', 'expired')
  ),
  estimated integer not null check (estimated in (0, 1)),
  -- The difference to a charge that the expiry of the hold made before. Its tokens can be negative, its cost cannot.
  late integer not null check (late in (0, 1)),
  prompt_tokens integer not null check (late = 1 or prompt_tokens >= 0),
  cached_tokens integer not null check (late = 1 or cached_tokens between 0 and prompt_tokens),
  completion_tokens integer not null check (completion_tokens >= 0),
  reasoning_tokens integer not null check (late = 1 or reasoning_tokens between 0 and completion_tokens),
  price_prompt integer not null check (price_prompt >= 0),
  price_completion integer not null check (price_completion >= 0),
  price_cached_prompt integer not null check (price_cached_prompt >= 0),
  cost integer not null check (cost >= 0),
  base integer not null check (base >= 0),
  overage integer not null check (overage >= 0),
  additional integer not null check (additional >= 0),
  shortfall integer not null check (shortfall >= 0),
  -- Journal numbers of the grants that were current, or 0 for charges from before there were grants.
  base_grant integer not null,
  overage_grant integer not null,
  -- The parts that were paid from windows that had been closed before.
  base_past integer not null check (base_past between 0 and base),
  overage_past integer not null check (overage_past between 0 and overage),
  unique (id, account, late),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint cost_is_priced check (
    cost = (prompt_tokens - cached_tokens) * price_prompt
      + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion
  )
) strict;

insert into charge
select account, id, seq, at_ms, key, model, ending, estimated, 0, prompt_tokens, cached_tokens, completion_tokens,
  reasoning_tokens, price_prompt, price_completion, price_cached_prompt, cost, base, overage, additional, shortfall,
  0, 0, 0, 0
from usage order by rowid;
drop table usage;

create trigger charge_is_never_changed before update on charge
begin select raise(abort, 'charges are never changed'); end;

create trigger charge_is_never_deleted before delete on charge
begin select raise(abort, 'charges are never deleted'); end;
