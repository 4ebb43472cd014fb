-- Grants record why an account has credits, and charges record what was paid from them. The account row is a cache of
-- both.
--
-- Before this file runs, the plans of the configuration are in plan_version, and every account's plan is among them.

create table credit_grant (
  account text collate "C" not null references account (id),
  seq bigint not null check (seq >= 1),
  bucket text not null check (bucket in ('base', 'overage', 'additional')),
  cause text not null check (
    cause in ('open', 'window', 'plan', 'close', 'reversal', 'carried_over', 'payment', 'duplicate', 'refund', 'adjustment')
  ),
  at_ms bigint not null,
  amount bigint not null check (amount >= 0 or cause in ('refund', 'adjustment')),
  -- The id of the payment, refund or adjustment.
  ref text collate "C",
  payment text collate "C",
  plan text collate "C",
  version bigint,
  anchor_ms bigint,
  starts_ms bigint,
  ends_ms bigint,
  since bigint,
  spent bigint check (spent >= 0),
  held bigint check (held >= 0),
  primary key (account, seq, bucket),
  constraint window_is_complete check (
    case bucket when 'additional'
      then plan is null and starts_ms is null and since is null and spent is null and held is null
      else plan is not null and anchor_ms is not null and starts_ms is not null and ends_ms is not null
        and starts_ms < ends_ms and since is not null and since <= seq and spent is not null and held is not null
        and (version is not null or cause = 'close') end
  )
);

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
    when row_number() over (partition by j.op order by j.at_ms, j.account) = 1 then 'payment' else 'duplicate' end,
  j.at_ms, j.additional_delta,
  case j.kind when 'adjust' then substr(j.op, length('adjust:') + 1) else substr(j.op, length('payment:') + 1) end
from journal j where j.kind in ('topup', 'adjust');

create trigger grant_is_never_changed before update on credit_grant
  for each row execute function refuse('grants are never changed');
create trigger grant_is_never_deleted before delete on credit_grant
  for each row execute function refuse('grants are never deleted');
create trigger grant_is_never_emptied before truncate on credit_grant
  for each statement execute function refuse('grants are never deleted');

alter table hold
  add column taken_seq bigint check (taken_seq >= 1),
  -- An array of what was taken before the last grant of base or overage, or null.
  add column earlier json check (json_typeof(earlier) = 'array');

-- The grants that are carried over are the present windows. Credits that a hold took from an older window move to
-- `earlier`, with a number before those grants.
update hold h set
  taken_seq = a.seq,
  base = case when h.base_starts_ms = a.base_starts_ms then h.base else 0 end,
  overage = case when h.overage_starts_ms = a.overage_starts_ms then h.overage else 0 end,
  earlier = case when h.base_past > 0 or h.overage_past > 0 or h.base > 0 and h.base_starts_ms <> a.base_starts_ms
      or h.overage > 0 and h.overage_starts_ms <> a.overage_starts_ms
    then json_build_array(json_build_object('seq', 0,
      'base', h.base_past + case when h.base_starts_ms = a.base_starts_ms then 0 else h.base end,
      'overage', h.overage_past + case when h.overage_starts_ms = a.overage_starts_ms then 0 else h.overage end)) end
from account a where a.id = h.account;

alter table hold
  alter column taken_seq set not null,
  drop column base_starts_ms,
  drop column overage_starts_ms,
  drop column base_past,
  drop column overage_past;

alter table account rename column held_base to base_held;
alter table account rename column held_overage to overage_held;
alter table account rename column held_additional to additional_held;
alter table account rename constraint account_held_base_check to account_base_held_check;
alter table account rename constraint account_held_overage_check to account_overage_held_check;
alter table account rename constraint account_held_additional_check to account_additional_held_check;

alter table account
  drop constraint base_within_cap,
  drop constraint overage_within_cap,
  add column next_plan text,
  add column state text not null default 'active' check (state in ('active', 'suspended', 'closed')),
  add column ends_ms bigint,
  -- The plan at the start of the window, and its version then.
  add column base_plan text,
  add column base_version bigint,
  add column base_every text,
  add column base_grant bigint,
  add column base_since bigint,
  add column overage_plan text,
  add column overage_version bigint,
  add column overage_every text,
  add column overage_grant bigint,
  add column overage_since bigint,
  -- An array of windows that plan changes closed before their planned end, or null.
  add column kept json check (json_typeof(kept) = 'array'),
  -- The cost of the open holds at their last checkpoints.
  add column used bigint not null default 0 check (used >= 0),
  add column tokens_limit bigint;

update account a set
  base_plan = a.plan, base_version = v.version, base_every = v.base_every, base_grant = a.seq, base_since = a.seq,
  overage_plan = a.plan, overage_version = v.version, overage_every = v.overage_every, overage_grant = a.seq, overage_since = a.seq,
  tokens_limit = v.tokens_per_minute,
  used = coalesce((
    select sum((h.prompt_tokens - h.cached_tokens) * h.price_prompt + h.cached_tokens * h.price_cached_prompt
      + h.completion_tokens * h.price_completion)
    from hold h where h.account = a.id
  ), 0)
from plan_version v where v.plan = a.plan and v.version = 1;

-- A bucket is the credits of the grant - spent - held, and can be below zero.
alter table account
  alter column state drop default,
  alter column used drop default,
  alter column base_plan set not null,
  alter column base_version set not null,
  alter column base_every set not null,
  alter column base_grant set not null,
  alter column base_since set not null,
  alter column overage_plan set not null,
  alter column overage_version set not null,
  alter column overage_every set not null,
  alter column overage_grant set not null,
  alter column overage_since set not null,
  add constraint account_base_cap_check check (base_cap between 0 and 9007199254740991),
  add constraint account_overage_cap_check check (overage_cap between 0 and 9007199254740991),
  add constraint base_within_cap check (base + base_held <= base_cap),
  add constraint overage_within_cap check (overage + overage_held <= overage_cap),
  add constraint grants_are_written check (
    base_since <= base_grant and base_grant <= seq and overage_since <= overage_grant and overage_grant <= seq
  );

alter table api_key
  add column old_hash text collate "C" unique check (length(old_hash) = 64),
  add column old_until_ms bigint,
  add column tokens_limit bigint,
  add column held bigint not null default 0 check (held >= 0),
  add column used bigint not null default 0 check (used >= 0),
  add column budget bigint check (budget >= 0),
  add column budget_every text,
  add column budget_anchor_ms bigint,
  add column budget_starts_ms bigint,
  add column budget_ends_ms bigint,
  add column budget_spent bigint check (budget_spent >= 0),
  -- Journal number of the account from which charges count in the window.
  add column budget_since bigint not null default 0,
  add constraint budget_is_complete check (
    case when budget is null
      then budget_every is null and budget_anchor_ms is null and budget_starts_ms is null and budget_ends_ms is null
        and budget_spent is null
      else budget_every is not null and budget_anchor_ms is not null and budget_starts_ms is not null
        and budget_ends_ms is not null and budget_starts_ms < budget_ends_ms and budget_spent is not null end
  );

update api_key set tokens_limit = tokens_per_minute where tokens_per_minute is not null;

update api_key k set held = h.held, used = h.used
from (
  select account, key, sum(base + overage + additional + coalesce((earlier->0->>'base')::bigint, 0)
    + coalesce((earlier->0->>'overage')::bigint, 0)) as held,
    sum((prompt_tokens - cached_tokens) * price_prompt + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion) as used
  from hold group by account, key
) h
where h.account = k.account and h.key = k.id;

alter table api_key
  alter column held drop default,
  alter column used drop default;

alter table journal
  drop constraint journal_kind_check,
  drop constraint journal_base_after_check,
  drop constraint journal_overage_after_check,
  add constraint journal_kind_check check (
    kind in ('open', 'refresh', 'plan', 'topup', 'hold', 'extend', 'settle', 'void', 'expire', 'adjust', 'refund',
      'suspend', 'resume', 'end', 'close', 'key', 'reverse')
  );

drop trigger usage_is_final on usage;
drop trigger usage_is_never_deleted on usage;
drop trigger usage_is_never_emptied on usage;
alter table usage rename to charge;
alter index usage_by_time rename to charge_by_time;

-- The names of its keys and checks follow.
do $$ declare rule record; begin
  for rule in select conname as name from pg_constraint where conrelid = 'charge'::regclass and conname like 'usage\_%'
  loop
    execute format('alter table charge rename constraint %I to %I', rule.name, 'charge' || substr(rule.name, length('usage') + 1));
  end loop;
end $$;

alter table charge
  -- The difference to a charge that the expiry of the hold made before. Its tokens can be negative, its cost cannot.
  add column late boolean not null default false,
  -- Journal numbers of the grants that were current, or 0 for charges from before there were grants.
  add column base_grant bigint not null default 0,
  add column overage_grant bigint not null default 0,
  -- The parts that were paid from windows that had been closed before.
  add column base_past bigint not null default 0,
  add column overage_past bigint not null default 0,
  drop constraint charge_id_account_key,
  drop constraint charge_check,
  drop constraint charge_check1,
  add constraint charge_id_account_late_key unique (id, account, late),
  add constraint charge_prompt_tokens_check check (late or prompt_tokens >= 0),
  add constraint charge_cached_tokens_check check (late or cached_tokens between 0 and prompt_tokens),
  add constraint charge_completion_tokens_check check (completion_tokens >= 0),
  add constraint charge_reasoning_tokens_check check (late or reasoning_tokens between 0 and completion_tokens),
  add constraint charge_cost_check check (cost >= 0),
  add constraint charge_base_past_check check (base_past between 0 and base),
  add constraint charge_overage_past_check check (overage_past between 0 and overage);

alter table charge
  alter column late drop default,
  alter column base_grant drop default,
  alter column overage_grant drop default,
  alter column base_past drop default,
  alter column overage_past drop default;

create trigger charge_is_never_changed before update on charge
  for each row execute function refuse('charges are never changed');
create trigger charge_is_never_deleted before delete on charge
  for each row execute function refuse('charges are never deleted');
create trigger charge_is_never_emptied before truncate on charge
  for each statement execute function refuse('charges are never deleted');
