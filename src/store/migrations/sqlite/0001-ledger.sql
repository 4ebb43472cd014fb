-- The ledger, its receipts and the keys. Amounts are whole micro-credits, times milliseconds since the epoch.
-- The checks repeat what the kernel promises, so that no other writer can break it either. Amounts stay below
-- 2^53, so that JavaScript reads them back exactly.

create table account (
  id text not null primary key check (id <> ''),
  plan text not null check (plan <> ''),
  next_plan text,
  state text not null check (state in ('active', 'suspended', 'closed')),
  ends_ms integer,
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  created_ms integer not null,

  -- The open grant of base, or nulls if the account is closed.
  base_seq integer,
  base_amount integer check (base_amount >= 0),
  base_spent integer check (base_spent >= 0),
  base_held integer check (base_held >= 0),
  base_from_ms integer,
  base_until_ms integer,
  base_anchor_ms integer,
  base_plan text,
  base_version integer,

  -- The open grant of overage, or nulls if the account is closed.
  overage_seq integer,
  overage_amount integer check (overage_amount >= 0),
  overage_spent integer check (overage_spent >= 0),
  overage_held integer check (overage_held >= 0),
  overage_from_ms integer,
  overage_until_ms integer,
  overage_anchor_ms integer,
  overage_plan text,
  overage_version integer,

  -- An array of the first open additional grants in spending order, or null: [number, amount, spent, held, 1 for a
  -- payment, end or null]. The others are in later_grant, and these are their sums.
  additional text check (json_type(additional) = 'array'),
  later_count integer not null check (later_count >= 0),
  later_free integer not null check (later_free >= 0),
  later_held integer not null check (later_held >= 0),
  later_until_ms integer,

  holds integer not null check (holds >= 0),
  -- The cost of the open holds at their last checkpoints.
  used integer not null check (used >= 0),

  requests_tat_ms real not null,
  tokens_tat_ms real not null,
  tokens_limit integer,

  constraint base_is_complete check (
    case when base_seq is null then state = 'closed'
      else base_amount is not null and base_spent is not null and base_held is not null and base_from_ms < base_until_ms
        and base_anchor_ms is not null and base_plan is not null and base_version is not null and base_seq <= seq end
  ),
  constraint overage_is_complete check (
    case when overage_seq is null then state = 'closed'
      else overage_amount is not null and overage_spent is not null and overage_held is not null and overage_from_ms < overage_until_ms
        and overage_anchor_ms is not null and overage_plan is not null and overage_version is not null and overage_seq <= seq end
  )
) strict, without rowid;

create index account_by_time on account (created_ms, id);
create index account_by_plan on account (plan, id);

create table api_key (
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
  budget_align text check (budget_align in ('opening', 'calendar')),
  budget_timezone text,
  budget_anchor_ms integer,
  budget_from_ms integer,
  budget_until_ms integer,
  budget_spent integer check (budget_spent >= 0),
  -- Set by an operator: the holder may only lower it.
  budget_by_operator integer check (budget_by_operator in (0, 1)),
  -- What the key may do in the portal: see itself, or manage all keys of its account.
  portal text not null check (portal in ('own', 'account')),
  primary key (account, id),
  constraint budget_is_complete check (
    case when budget is null then budget_every is null and budget_from_ms is null and budget_spent is null
      else budget_every is not null and budget_align is not null and budget_timezone is not null
        and budget_anchor_ms is not null and budget_from_ms < budget_until_ms and budget_spent is not null
        and budget_by_operator is not null end
  )
) strict, without rowid;

-- What running requests hold. Every commit asks which holds of its accounts are overdue, and the sweeper asks across
-- accounts.
create table hold (
  account text not null references account (id),
  id text not null check (id <> ''),
  key text not null,
  model text not null,
  created_ms integer not null,
  expires_ms integer not null,
  -- An array of what was taken from grants: [number of the grant, bucket, amount].
  takings text check (json_type(takings) = 'array'),
  -- The number of the last extension, and what it took.
  extension integer not null check (extension >= 0),
  extended integer not null check (extended >= 0),
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

create index hold_by_expiry on hold (expires_ms);
create index hold_by_account on hold (account, expires_ms);

-- Journal and charge are tables with a row id of their own and are written at their end only. Their second index
-- begins with the operation or request id, which begins with the time. Clustered by account instead, 512 requests
-- of 10,000 accounts touch six pages each instead of three, and with 600,000 rows made half as many pairs of hold
-- and settlement a second.
create table journal (
  account text not null references account (id),
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  kind text not null check (
    kind in ('open', 'window', 'plan', 'change', 'payment', 'promotion', 'memo', 'adjust', 'refund', 'suspend', 'resume',
      'end', 'close', 'key')
  ),
  -- The operation, which counts once in the installation.
  op text unique check (op <> ''),
  by text not null check (by <> ''),
  bucket text check (bucket in ('base', 'overage', 'additional')),
  amount integer,
  -- The grant that it changes.
  grant_seq integer check (grant_seq < seq),
  note text,
  primary key (account, seq),
  -- A change of the plan has what comes, or goes, before the open windows would have ended.
  constraint amount_has_a_bucket check ((amount is null) = (bucket is null) or kind = 'plan')
) strict, without rowid;

create trigger journal_is_never_changed before update on journal
begin select raise(abort, 'journal entries are never changed'); end;

create trigger journal_is_never_deleted before delete on journal
begin select raise(abort, 'journal entries are never deleted'); end;

-- Grants record why an account has credits, and charges record what was paid from them. The account row is a cache of
-- both. A payment counts once in the installation, and so does a refund.
create table credit_grant (
  account text not null references account (id),
  seq integer not null check (seq >= 1),
  bucket text not null check (bucket in ('base', 'overage', 'additional')),
  amount integer not null check (amount >= 0),
  -- What a new window within a period carried in.
  spent integer not null check (spent >= 0),
  from_ms integer not null,
  until_ms integer check (until_ms > from_ms),
  anchor_ms integer,
  plan text,
  version integer,
  payment text unique check (payment <> ''),
  -- The request that a memo is about.
  request text,
  primary key (account, seq),
  constraint window_is_complete check (
    case bucket when 'additional' then plan is null and version is null and anchor_ms is null and spent = 0
      else plan is not null and version is not null and anchor_ms is not null and until_ms is not null
        and payment is null and request is null end
  )
) strict, without rowid;

create index grant_by_request on credit_grant (request) where request is not null;

create trigger grant_is_never_changed before update on credit_grant
begin select raise(abort, 'grants are never changed'); end;

create trigger grant_is_never_deleted before delete on credit_grant
begin select raise(abort, 'grants are never deleted'); end;

-- The open additional grants that are not in the row of their account.
create table later_grant (
  account text not null references account (id),
  seq integer not null,
  amount integer not null,
  spent integer not null check (spent >= 0),
  held integer not null check (held >= 0),
  is_payment integer not null check (is_payment in (0, 1)),
  until_ms integer,
  primary key (account, seq),
  constraint amount_is_left check (spent + held <= amount)
) strict, without rowid;

-- Receipts have no key by account and number: with a place for each account, nearly every settlement wrote a page for
-- it (docs/decisions/0014-what-a-request-costs.md). The journal finds the receipts of an account, in order. Charges are
-- numbered by their rowid, without gaps, and a copy of the file has the same numbers.
create table charge (
  account text not null references account (id),
  id text not null check (id <> ''),
  seq integer not null check (seq >= 1),
  at_ms integer not null,
  key text not null,
  model text not null,
  ending text not null check (
    ending = 'stop' or ending = 'length'
      or ending in ('credits', 'client_gone', 'stopped', 'engine_failed', 'refused', 'shutdown', 'expired')
  ),
  -- Who stopped the request.
  by text,
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
  -- An array of what the grants paid: [number of the grant, bucket, amount].
  paid text check (json_type(paid) = 'array'),
  unique (id, account, late),
  unique (account, seq),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint cost_is_priced check (
    cost = (prompt_tokens - cached_tokens) * price_prompt
      + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion
  )
) strict;

create trigger charge_is_never_changed before update on charge
begin select raise(abort, 'charges are never changed'); end;

create trigger charge_is_never_deleted before delete on charge
begin select raise(abort, 'charges are never deleted'); end;

-- Every version of every plan, and the plans sections of the configuration that were applied. No row is ever changed: a
-- grant names the version that it came from.
create table plan_version (
  plan text not null check (plan <> ''),
  version integer not null check (version >= 1),
  created_ms integer not null,
  base_credits integer not null check (base_credits >= 0),
  base_every text not null,
  base_align text not null check (base_align in ('opening', 'calendar')),
  overage_credits integer not null check (overage_credits >= 0),
  overage_every text not null,
  overage_align text not null check (overage_align in ('opening', 'calendar')),
  timezone text not null,
  requests_per_minute integer check (requests_per_minute > 0),
  tokens_per_minute integer check (tokens_per_minute > 0),
  concurrent integer check (concurrent > 0),
  -- A JSON array of model ids, or of "*".
  models text not null check (json_type(models) = 'array'),
  primary key (plan, version)
) strict, without rowid;

create trigger plan_version_is_never_changed before update on plan_version
begin select raise(abort, 'plan versions are never changed'); end;

create trigger plan_version_is_never_deleted before delete on plan_version
begin select raise(abort, 'plan versions are never deleted'); end;

create table plan_file (
  epoch integer not null primary key check (epoch >= 1),
  fingerprint text not null check (length(fingerprint) = 64),
  applied_ms integer not null,
  -- A JSON array of the plans that accounts can be put on.
  plans text not null check (json_type(plans) = 'array')
) strict;

create trigger plan_file_is_never_changed before update on plan_file
begin select raise(abort, 'applied plans sections are never changed'); end;

create trigger plan_file_is_never_deleted before delete on plan_file
begin select raise(abort, 'applied plans sections are never deleted'); end;

-- The clock of the ledger (docs/operating/clock.md). One row: trusted, elapsed and ledger time as they were recorded last,
-- and the time since the machine started. A new process compares its clock with it.
create table clock (
  id integer primary key check (id = 1),
  trust text not null check (trust in ('trusted', 'stepped', 'ahead')),
  clock_ms integer not null,
  elapsed_ms integer not null,
  ledger_ms integer not null,
  boot_id text,
  boot_ms integer,
  accepts integer not null
) strict;

insert into clock values (1, 'trusted', 0, 0, 0, null, null, 0);

-- Clocks that an operator has accepted: who, ledger time before, and the accepted time.
create table clock_accept (
  number integer primary key check (number >= 1),
  by text not null check (by <> ''),
  ledger_ms integer not null,
  clock_ms integer not null
) strict;

create trigger clock_accept_is_never_changed before update on clock_accept
begin select raise(abort, 'accepted clocks are never changed'); end;

create trigger clock_accept_is_never_deleted before delete on clock_accept
begin select raise(abort, 'accepted clocks are never deleted'); end;

-- Charges, summed by day and by hour (docs/decisions/0047-usage-sums.md), with the first and the last number of their
-- receipts in the journal of the account.
create table usage_sum (
  unit text not null check (unit in ('day', 'hour')),
  -- Dates in the zone of the configuration, or hours in UTC, since 1970.
  period integer not null,
  -- Hours also have rows of all keys of an account, and of all accounts: account and key are empty.
  account text not null,
  key text not null,
  model text not null,
  -- Late charges belong to requests that were counted before, and their tokens can be negative.
  requests integer not null check (requests >= 0),
  late integer not null check (late >= 0),
  prompt_tokens integer not null,
  cached_tokens integer not null,
  completion_tokens integer not null,
  reasoning_tokens integer not null,
  cost integer not null check (cost >= 0),
  base integer not null check (base >= 0),
  overage integer not null check (overage >= 0),
  additional integer not null check (additional >= 0),
  shortfall integer not null check (shortfall >= 0),
  first_seq integer not null,
  last_seq integer not null,
  primary key (unit, period, account, key, model),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint span_has_a_receipt check (first_seq <= last_seq)
) strict, without rowid;

create index usage_sum_by_account on usage_sum (account, unit, key, period);

create trigger usage_day_is_final_for_inserts before insert on usage_sum
when new.unit = 'day' and new.period <= (select day from usage_close order by number desc limit 1)
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_final before update on usage_sum
when old.unit = 'day' and old.period <= (select day from usage_close order by number desc limit 1)
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_never_deleted before delete on usage_sum when old.unit = 'day'
begin select raise(abort, 'sums of usage are never deleted'); end;

-- One row: the last charge that was summed.
create table usage_summed (
  id integer primary key check (id = 1),
  through integer not null check (through >= 0)
) strict;

insert into usage_summed (id, through) values (1, 0);

-- Each time that days became final: the last of them, and the last charge that was summed before. Charges after that
-- number count in later days, which are those of the time zone. The first record has no final day.
create table usage_close (
  number integer primary key check (number >= 1),
  through integer not null check (through >= 0),
  day integer not null,
  timezone text not null check (timezone <> '')
) strict;

create index usage_close_by_charge on usage_close (through, number);

create trigger usage_close_is_never_changed before update on usage_close
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_close_is_never_deleted before delete on usage_close
begin select raise(abort, 'final days are never changed'); end;

-- The owner of an account. The ledger does not use it. Lists search it by prefix
-- (docs/decisions/0048-lists-of-accounts.md).
create table account_contact (
  account text not null primary key references account (id),
  owner text check (owner <> ''),
  email text check (email <> ''),
  note text check (note <> ''),
  -- The id of the account in another system.
  external_id text check (external_id <> '')
) strict, without rowid;

create unique index contact_by_external_id on account_contact (external_id) where external_id is not null;
create index contact_by_email_prefix on account_contact (lower(email));
create index contact_by_external_id_prefix on account_contact (lower(external_id));

-- Sessions of the console and the portal, and codes that become one (docs/decisions/0050-sessions.md). A row has a hash
-- of the secret in the cookie or the link, and never the secret itself.
create table session (
  hash text not null primary key check (length(hash) = 64),
  kind text not null check (kind in ('operator', 'operator_code', 'portal')),
  -- `operator`, or the id of a key.
  owner text not null check (owner <> ''),
  created_ms integer not null check (created_ms >= 0),
  -- Written at most once a minute.
  used_ms integer not null check (used_ms >= created_ms),
  -- The session ends if it is not used for this time, and at `ends_ms` in any case.
  idle_ms integer not null check (idle_ms > 0),
  ends_ms integer not null check (ends_ms > created_ms),
  -- Set by signing out, and when a code is used.
  ended_ms integer
) strict, without rowid;

create index session_by_owner on session (kind, owner, created_ms);
create index session_by_idle_end on session (used_ms + idle_ms);

-- Requests that an operator has stopped. The process that answers a request looks for it here. Rows are deleted later.
create table stop_request (
  id text not null primary key check (id <> ''),
  by text not null check (by <> ''),
  at_ms integer not null
) strict, without rowid;

-- One row: the audit that runs in a service now, and the last result. Nothing decides by this row.
create table audit_job (
  id integer not null primary key check (id = 1),
  -- The id of the running audit, and the time of its last sign of life.
  run text check (run <> ''),
  started_ms integer,
  alive_ms integer,
  -- The last audit that read all rows: its times, the number of broken rules, and its report in JSON.
  last_started_ms integer,
  last_ended_ms integer,
  problems integer check (problems >= 0),
  report text,
  -- An audit after that one which could not read all rows.
  failed_ms integer,
  failure text
) strict;

insert into audit_job (id) values (1);
