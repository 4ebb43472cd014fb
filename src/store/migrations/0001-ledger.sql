-- The ledger, its receipts and the keys. Amounts are whole micro-credits, times milliseconds since the epoch. The checks
-- repeat what the kernel promises, so that no other writer can break it either. Amounts stay below 2^53, so that
-- JavaScript reads them back exactly.
--
-- Both databases have this schema. src/store/migrations.ts writes what stands in braces for one of them:
--   int, real, text, bool, json    the type. Text is compared by its bytes: accounts are locked in the order of their ids.
--   json_type                      the function that names the type of a JSON value
--   table                          the options of a table: SQLite checks types and keeps rows in the order of their key
--   append only TABLE, ROWS        triggers: the rows are never changed or deleted, and errors call them ROWS;
--                                  with "of COLUMNS:" in place of the comma, the other columns can change
--   sqlite ... end                 what only SQLite has
--   postgres ... end               what only PostgreSQL has. Its connections name a schema of their own in the search path.

{postgres}
create function refuse() returns trigger language plpgsql as $$
begin
  raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation';
end $$;

create function refuse_final_day() returns trigger language plpgsql as $$
begin
  if new.period <= (select day from usage_close order by number desc limit 1) then
    raise exception 'final days are never changed';
  end if;
  return new;
end $$;

-- A commit sends its writes and its end together: what is not as it was read must stop it on the spot.
create function expect_rows(written bigint, wanted bigint, name text) returns void language plpgsql as $$
begin
  if written <> wanted then
    raise exception 'rows of % that were read under the lock are not there to be written: % of %', name, written, wanted;
  end if;
end $$;
{end}

create table account (
  id {text} not null primary key check (id <> ''),
  plan {text} not null check (plan <> ''),
  next_plan {text},
  -- When the account got its plan.
  plan_since_ms {int} not null,
  state {text} not null check (state in ('active', 'suspended', 'closed')),
  ends_ms {int},
  seq {int} not null check (seq >= 1),
  at_ms {int} not null,
  created_ms {int} not null,

  -- The open grant of base, or nulls if the account is closed.
  base_seq {int},
  base_amount {int} check (base_amount >= 0),
  base_spent {int} check (base_spent >= 0),
  base_held {int} check (base_held >= 0),
  base_from_ms {int},
  base_until_ms {int},
  base_anchor_ms {int},
  base_plan {text},
  base_version {int},

  -- The open grant of overage, or nulls if the account is closed.
  overage_seq {int},
  overage_amount {int} check (overage_amount >= 0),
  overage_spent {int} check (overage_spent >= 0),
  overage_held {int} check (overage_held >= 0),
  overage_from_ms {int},
  overage_until_ms {int},
  overage_anchor_ms {int},
  overage_plan {text},
  overage_version {int},

  -- An array of the first open additional grants in spending order, or null: [number, amount, spent, held, 1 for a
  -- payment, end or null]. The others are in later_grant, and these are their sums.
  additional {json} check ({json_type}(additional) = 'array'),
  later_count {int} not null check (later_count >= 0),
  later_free {int} not null check (later_free >= 0),
  later_held {int} not null check (later_held >= 0),
  later_until_ms {int},

  holds {int} not null check (holds >= 0),
  -- What caps have counted, or null: arrays of [name, period, alignment, zone, beginning, end, anchor, spent]. Then what
  -- open holds hold, or null: [model, held, cost at the last checkpoints].
  counters {json} check ({json_type}(counters) = 'array'),
  running {json} check ({json_type}(running) = 'array'),

  requests_tat_ms {real} not null,
  tokens_tat_ms {real} not null,
  tokens_limit {int},

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
) {table};

create index account_by_time on account (created_ms, id);
create index account_by_plan on account (plan, id);
create index account_by_next_plan on account (base_until_ms) where next_plan is not null;
create index account_by_end on account (ends_ms) where state <> 'closed';

create table api_key (
  account {text} not null references account (id),
  id {text} not null unique check (id <> ''),
  hash {text} not null unique check (length(hash) = 64),
  old_hash {text} unique check (length(old_hash) = 64),
  old_until_ms {int},
  name {text},
  last_four {text} not null check (length(last_four) = 4),
  -- Model ids, or "*".
  models {json} not null check ({json_type}(models) = 'array'),
  requests_per_minute {int} check (requests_per_minute > 0),
  tokens_per_minute {int} check (tokens_per_minute > 0),
  concurrent {int} check (concurrent > 0),
  created_ms {int} not null,
  expires_ms {int},
  revoked_ms {int},
  last_used_ms {int},
  requests_tat_ms {real} not null,
  tokens_tat_ms {real} not null,
  tokens_limit {int},
  holds {int} not null check (holds >= 0),
  -- The caps, or null: arrays of [name, period, alignment, zone, amount, models, time, 1 if an operator has set it].
  caps {json} check ({json_type}(caps) = 'array'),
  -- As in account.
  counters {json} check ({json_type}(counters) = 'array'),
  running {json} check ({json_type}(running) = 'array'),
  -- What the key may do in the portal: see itself, or manage all keys of its account.
  portal {text} not null check (portal in ('own', 'account')),
  -- The front end of the key: its requests are paid by the accounts of the people behind it.
  acts_for_name {text} check (acts_for_name <> ''),
  acts_for_header {text},
  acts_for_name_header {text},
  acts_for_email_header {text},
  acts_for_plan {text},
  acts_for_new_accounts_per_day {int} check (acts_for_new_accounts_per_day > 0),
  -- Of the name and the last four characters (src/store/words.ts).
  words {text} not null default '',
  primary key (account, id),
  constraint acts_for_is_complete check (
    (acts_for_name is null) = (acts_for_header is null)
      and (acts_for_plan is null) = (acts_for_new_accounts_per_day is null)
      and (acts_for_name is not null or coalesce(acts_for_plan, acts_for_name_header, acts_for_email_header) is null)
  )
) {table};

-- For the pages of all keys.
create index key_by_creation on api_key (created_ms, id);
-- For searches, which read all words: a row of a key has much beside them.
create index key_words on api_key (id, words);
-- There are few, and every commit asks for those among its keys.
create index key_of_front_end on api_key (id) where acts_for_name is not null;

-- What running requests hold. Every commit asks which holds of its accounts are overdue, and the sweeper asks across
-- accounts.
create table hold (
  account {text} not null references account (id),
  id {text} not null check (id <> ''),
  key {text} not null,
  model {text} not null,
  created_ms {int} not null,
  expires_ms {int} not null,
  -- An array of what was taken from grants: [number of the grant, bucket, amount].
  takings {json} check ({json_type}(takings) = 'array'),
  -- The number of the last extension, and what it took.
  extension {int} not null check (extension >= 0),
  extended {int} not null check (extended >= 0),
  metered_tokens {int} not null check (metered_tokens >= 0),
  prompt_tokens {int} not null,
  cached_tokens {int} not null check (cached_tokens between 0 and prompt_tokens),
  completion_tokens {int} not null,
  reasoning_tokens {int} not null check (reasoning_tokens between 0 and completion_tokens),
  price_prompt {int} not null check (price_prompt >= 0),
  price_completion {int} not null check (price_completion >= 0),
  price_cached_prompt {int} not null check (price_cached_prompt >= 0),
  -- Commits find holds by their id alone on PostgreSQL, and no other index can take its place.
  primary key ({sqlite}account, id{end}{postgres}id, account{end})
) {table};

create index hold_by_expiry on hold (expires_ms);
-- On PostgreSQL the id is included, and no part of the key: a lookup by id must not use this index.
create index hold_by_account on hold (account, expires_ms){postgres} include (id){end};

create table journal (
  account {text} not null references account (id),
  seq {int} not null check (seq >= 1),
  at_ms {int} not null,
  kind {text} not null check (
    kind in ('open', 'window', 'plan', 'change', 'payment', 'promotion', 'memo', 'adjust', 'refund', 'suspend', 'resume',
      'end', 'close', 'key')
  ),
  -- The operation, which counts once in the installation.
  op {text} unique check (op <> ''),
  by {text} not null check (by <> ''),
  bucket {text} check (bucket in ('base', 'overage', 'additional')),
  amount {int},
  -- The grant that it changes.
  grant_seq {int} check (grant_seq < seq),
  -- The key, the payment, or the request of a memo.
  subject {text},
  -- JSON objects: what it has replaced and set, and what the operation has led to.
  before {text},
  after {text},
  outcome {text},
  primary key (account, seq),
  -- A change of the plan has what comes, or goes, before the open windows would have ended.
  constraint amount_has_a_bucket check ((amount is null) = (bucket is null) or kind = 'plan')
) {table};

{append only journal, journal entries}

-- Changes over all accounts, newest first.
create index journal_by_time on journal (at_ms) where kind not in ('window', 'change');

-- Grants record why an account has credits, and charges record what was paid from them. The account row is a cache of
-- both. A payment counts once in the installation, and so does a refund.
create table credit_grant (
  account {text} not null references account (id),
  seq {int} not null check (seq >= 1),
  bucket {text} not null check (bucket in ('base', 'overage', 'additional')),
  amount {int} not null check (amount >= 0),
  -- What a new window within a period carried in.
  spent {int} not null check (spent >= 0),
  from_ms {int} not null,
  until_ms {int} check (until_ms > from_ms),
  anchor_ms {int},
  plan {text},
  version {int},
  payment {text} unique check (payment <> ''),
  -- The request that a memo is about.
  request_id {text},
  primary key (account, seq),
  constraint window_is_complete check (
    case bucket when 'additional' then plan is null and version is null and anchor_ms is null and spent = 0
      else plan is not null and version is not null and anchor_ms is not null and until_ms is not null
        and payment is null and request_id is null end
  )
) {table};

create index grant_by_request on credit_grant (request_id) where request_id is not null;
create index payment_by_prefix on credit_grant (lower(payment)) where payment is not null;

{append only credit_grant, grants}

-- The open additional grants that are not in the row of their account.
create table later_grant (
  account {text} not null references account (id),
  seq {int} not null,
  amount {int} not null,
  spent {int} not null check (spent >= 0),
  held {int} not null check (held >= 0),
  is_payment {bool} not null check (is_payment in (false, true)),
  until_ms {int},
  primary key (account, seq),
  constraint amount_is_left check (spent + held <= amount)
) {table};

-- Charges have a number, in the order in which they are written, with the name that SQLite gives the number of each row.
-- There it has no gaps, and a copy of the file has the same numbers. On PostgreSQL several nodes write at once, so a
-- smaller number can be committed later. Lists by `from` and `to`, and the sums, find charges there by a few pages of two
-- small indexes.
create table charge (
  account {text} not null references account (id),
  id {text} not null check (id <> ''),
  seq {int} not null check (seq >= 1),
  at_ms {int} not null,
  key {text} not null,
  -- The version of the plan whose caps counted it. 0: the plan could not be read.
  plan_version {int} not null check (plan_version >= 0),
  model {text} not null,
  ending {text} not null check (
    ending = 'stop' or ending = 'length'
      or ending in ('credits', 'cap', 'client_gone', 'stopped', 'engine_failed', 'refused', 'shutdown', 'expired')
  ),
  -- Who stopped the request.
  by {text},
  estimated {bool} not null check (estimated in (false, true)),
  -- Something odd about the counts of the upstream.
  note {text},
  -- The difference to a charge that the expiry of the hold made before. Its tokens can be negative, its cost cannot.
  late {bool} not null check (late in (false, true)),
  prompt_tokens {int} not null check (late or prompt_tokens >= 0),
  cached_tokens {int} not null check (late or cached_tokens between 0 and prompt_tokens),
  completion_tokens {int} not null check (completion_tokens >= 0),
  reasoning_tokens {int} not null check (late or reasoning_tokens between 0 and completion_tokens),
  price_prompt {int} not null check (price_prompt >= 0),
  price_completion {int} not null check (price_completion >= 0),
  price_cached_prompt {int} not null check (price_cached_prompt >= 0),
  cost {int} not null check (cost >= 0),
  base {int} not null check (base >= 0),
  overage {int} not null check (overage >= 0),
  additional {int} not null check (additional >= 0),
  shortfall {int} not null check (shortfall >= 0),
  -- An array of what the grants paid: [number of the grant, bucket, amount].
  paid {json} check ({json_type}(paid) = 'array'),
  {postgres}rowid bigint generated always as identity,{end}
  primary key (account, seq),
  unique (id, account, late),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint cost_is_priced check (
    cost = (prompt_tokens - cached_tokens) * price_prompt
      + cached_tokens * price_cached_prompt
      + completion_tokens * price_completion
  )
) {sqlite}strict{end};

{postgres}
create index charge_by_time on charge using brin (at_ms) with (pages_per_range = 32, autosummarize = on);
create index charge_by_rowid on charge using brin (rowid) with (pages_per_range = 32, autosummarize = on);
{end}

{append only charge, charges}

-- Every version of every plan, and the plans sections of the configuration that were applied. No row is ever changed: a
-- grant names the version that it came from.
create table plan_version (
  plan {text} not null check (plan <> ''),
  version {int} not null check (version >= 1),
  created_ms {int} not null,
  base_credits {int} not null check (base_credits >= 0),
  base_every {text} not null,
  base_align {text} not null check (base_align in ('opening', 'calendar')),
  overage_credits {int} not null check (overage_credits >= 0),
  overage_every {text} not null,
  overage_align {text} not null check (overage_align in ('opening', 'calendar')),
  -- The caps, or null: arrays of [name, credits, period, alignment, models].
  caps {json} check ({json_type}(caps) = 'array'),
  timezone {text} not null,
  requests_per_minute {int} check (requests_per_minute > 0),
  tokens_per_minute {int} check (tokens_per_minute > 0),
  concurrent {int} check (concurrent > 0),
  -- Model ids, or "*".
  models {json} not null check ({json_type}(models) = 'array'),
  primary key (plan, version)
) {table};

{append only plan_version, plan versions}

create table plan_file (
  epoch {int} not null primary key check (epoch >= 1),
  fingerprint {text} not null check (length(fingerprint) = 64),
  applied_ms {int} not null,
  -- Who applied it.
  by {text} not null check (by <> ''),
  -- The plans that accounts can be put on.
  plans {json} not null check ({json_type}(plans) = 'array')
) {table};

{append only plan_file, applied plans sections}

-- The clock of the ledger (docs/operating/jobs.md#the-clock). One row: elapsed and ledger time as they were recorded last, from which
-- a new process goes on, and the last ledger time that an operator has accepted although it was ahead of the clock.
create table clock (
  id {int} primary key check (id = 1),
  elapsed_ms {int} not null,
  ledger_ms {int} not null,
  accepted_ms {int} not null
) {table};

insert into clock values (1, 0, 0, 0);

-- Changes that no journal has: contacts, operator keys, people, invitations, links, plans, clocks, reloads of the
-- configuration, sign-ins.
create table change_log (
  id {text} not null primary key check (id <> ''),
  at_ms {int} not null,
  kind {text} not null check (
    kind in ('contact', 'operator_key', 'person', 'invitation', 'link', 'plans', 'clock', 'reload', 'sign_in')
  ),
  by {text} not null check (by <> ''),
  account {text},
  subject {text},
  before {text},
  after {text}
) {table};

create index change_log_by_time on change_log (at_ms, id);
-- What an erase of a person looks for.
create index change_log_by_subject on change_log (subject, at_ms, id) where subject is not null;
create index change_log_by_account on change_log (account, at_ms, id) where account is not null;

-- The values that a change has replaced and set can be erased (docs/decisions/0084-erased-people.md).
{append only change_log of id, at_ms, kind, by, account, subject: recorded changes}

-- Keys of programs that use the operator API. A key ends with who made it.
create table operator_key (
  id {text} not null primary key check (id <> ''),
  -- Of the secret, keyed with the operator token.
  hash {text} not null unique check (length(hash) = 64),
  last_four {text} not null,
  name {text} not null check (name <> ''),
  role {text} not null check (role in ('viewer', 'support', 'operator', 'owner')),
  -- Who made it: the operator token or a person.
  by {text} not null check (by <> ''),
  created_ms {int} not null,
  expires_ms {int} not null check (expires_ms > created_ms),
  -- Written at most once a minute.
  used_ms {int},
  ended_ms {int}
) {table};

-- Counts that have a limit for each day in UTC: micro-credits that support gives, accounts that a front end opens.
create table daily_count (
  name {text} not null check (name <> ''),
  day {int} not null,
  counted {int} not null check (counted >= 0),
  primary key (name, day)
) {table};

-- Charges, summed by day and by hour (docs/decisions/0074-one-table-of-sums.md), with the first and the last number of their
-- receipts in the journal of the account.
create table usage_sum (
  unit {text} not null check (unit in ('day', 'hour')),
  -- Dates in the zone of the configuration, or hours in UTC, since 1970.
  period {int} not null,
  -- There are also rows of all keys of an account, and of all accounts: account and key are empty.
  account {text} not null,
  key {text} not null,
  model {text} not null,
  -- Late charges belong to requests that were counted before, and their tokens can be negative.
  requests {int} not null check (requests >= 0),
  late {int} not null check (late >= 0),
  prompt_tokens {int} not null,
  cached_tokens {int} not null,
  completion_tokens {int} not null,
  reasoning_tokens {int} not null,
  cost {int} not null check (cost >= 0),
  base {int} not null check (base >= 0),
  overage {int} not null check (overage >= 0),
  additional {int} not null check (additional >= 0),
  shortfall {int} not null check (shortfall >= 0),
  first_seq {int} not null,
  last_seq {int} not null,
  primary key (unit, period, account, key, model),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall),
  constraint span_has_a_receipt check (first_seq <= last_seq)
) {table};

create index usage_sum_by_account on usage_sum (account, period);
create index usage_sum_by_key on usage_sum (account, key, period);
create index usage_sum_by_model on usage_sum (account, model, period);

{sqlite}
create trigger usage_day_is_final_for_inserts before insert on usage_sum
when new.unit = 'day' and new.period <= (select day from usage_close order by number desc limit 1)
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_final before update on usage_sum
when old.unit = 'day' and old.period <= (select day from usage_close order by number desc limit 1)
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_never_deleted before delete on usage_sum when old.unit = 'day'
begin select raise(abort, 'sums of usage are never deleted'); end;
{end}
{postgres}
create trigger usage_day_is_final before insert or update on usage_sum
  for each row when (new.unit = 'day') execute function refuse_final_day();
create trigger usage_day_is_never_deleted before delete on usage_sum
  for each row when (old.unit = 'day') execute function refuse('sums of usage are never deleted');
create trigger usage_sum_is_never_emptied before truncate on usage_sum
  for each statement execute function refuse('sums of usage are never deleted');
{end}

-- One row: the last charge that was summed.
create table usage_summed (
  id {int} primary key check (id = 1),
  through {int} not null check (through >= 0)
) {table};

insert into usage_summed (id, through) values (1, 0);

-- Each time that days became final: the last of them, and the last charge that was summed before. Charges after that
-- number count in later days, which are those of the time zone. The first record has no final day.
create table usage_close (
  number {int} primary key check (number >= 1),
  through {int} not null check (through >= 0),
  day {int} not null,
  timezone {text} not null check (timezone <> '')
) {table};

create index usage_close_by_charge on usage_close (through, number);

{append only usage_close, final days}

-- The owner of an account. The ledger does not use it.
create table account_contact (
  account {text} not null primary key references account (id),
  owner {text} check (owner <> ''),
  email {text} check (email <> ''),
  note {text} check (note <> ''),
  -- The id of the account in another system.
  external_id {text} check (external_id <> ''),
  -- Kinds of mail about the account.
  balance_low_mail {text} not null default 'on' check (balance_low_mail in ('on', 'off')),
  balance_cap_mail {text} not null default 'on' check (balance_cap_mail in ('on', 'off')),
  balance_exhausted_mail {text} not null default 'on' check (balance_exhausted_mail in ('on', 'off')),
  key_expiring_mail {text} not null default 'on' check (key_expiring_mail in ('on', 'off')),
  -- Of the owner, the e-mail address and the external id: without accents, each after a space (src/store/words.ts).
  words {text} not null default ''
) {table};

create unique index contact_by_external_id on account_contact (external_id) where external_id is not null;
create index contact_by_email_prefix on account_contact (lower(email));

-- Sessions of the console and the portal, and codes that become one (docs/decisions/0068-sessions-have-two-secrets.md). A row has a hash
-- of the secret in the cookie or the link, and never the secret itself.
create table session (
  hash {text} not null primary key check (length(hash) = 64),
  kind {text} not null check (kind in ('operator', 'operator_code', 'portal', 'sign_in')),
  -- `operator`, the hash of a key, the id of a person, or the page of a sign-in that has begun.
  owner {text} not null check (owner <> ''),
  created_ms {int} not null check (created_ms >= 0),
  -- Written at most once a minute.
  used_ms {int} not null check (used_ms >= created_ms),
  -- The session ends if it is not used for this time, and at `ends_ms` in any case.
  idle_ms {int} not null check (idle_ms > 0),
  ends_ms {int} not null check (ends_ms > created_ms),
  -- Set by signing out, and when a code is used.
  ended_ms {int},
  -- The refresh token of a person's session, encrypted with both secrets of the session, and its last use.
  sealed {text},
  checked_ms {int},
  -- When the person has signed in at the issuer, as the issuer says.
  authenticated_ms {int}
) {table};

create index session_by_owner on session (kind, owner, created_ms);
create index session_by_idle_end on session ((used_ms + idle_ms));

-- People who sign in with OpenID Connect (docs/decisions/0081-people.md) or were invited: their issuer is `invitation`. No row
-- is ever deleted: it shows that a person was linked to its account.
create table person (
  id {text} not null primary key check (id <> ''),
  issuer {text} not null check (issuer <> ''),
  sub {text} not null check (sub <> ''),
  name {text},
  email {text},
  email_verified {bool} not null check (email_verified in (false, true)),
  -- The role that a rule gave last, and its condition. The configuration says which role that is now.
  role_rule {text},
  role_matched_ms {int},
  account_matched_ms {int},
  seen_ms {int} not null,
  account {text} references account (id),
  account_by {text} check (account_by <> ''),
  lapsed_ms {int},
  suspended_ms {int},
  -- Since then, `sub` is a pseudonym (docs/decisions/0084-erased-people.md).
  erased_ms {int},
  created_ms {int} not null,
  -- Of name, e-mail address and `sub` (src/store/words.ts). An erased person has none.
  words {text} not null default '',
  unique (issuer, sub),
  constraint account_was_linked_by_somebody check ((account is null) = (account_by is null))
) {table};

-- A sign-in links an account to one person, however many sign in at the same time.
create unique index person_by_linked_account on person (account) where account_by in ('rule', 'email');
create index person_by_account on person (account) where account is not null;
-- An account and an invited address have one person, however many links they get.
create unique index person_by_invitation on person (account, lower(email)) where issuer = 'invitation' and email is not null;
create index person_by_match on person (account_matched_ms) where account_by = 'rule' and lapsed_ms is null;

-- Invitations (docs/decisions/0083-invitations.md). An account and an address have one row: a newer link replaces the one
-- before. It is deleted with the address of the contact.
create table invitation (
  account {text} not null references account (id),
  -- In lower case. Empty: of the person who has joined by a link, without an address.
  email {text} not null,
  -- Of the code in the link, never the code itself.
  hash {text} not null unique check (length(hash) = 64),
  by {text} not null check (by <> ''),
  created_ms {int} not null,
  ends_ms {int} not null check (ends_ms > created_ms),
  -- The exchange of the link, and its random id.
  used_ms {int},
  used_by {text},
  primary key (account, email),
  constraint exchange_has_an_id check ((used_ms is null) = (used_by is null))
) {table};

-- Links by which many people join (docs/decisions/0108-links.md). Their times are ledger times.
create table link (
  id {text} not null primary key check (id <> ''),
  name {text} not null check (name <> ''),
  plan {text} not null check (plan <> ''),
  seats {int} not null check (seats between 1 and 10000),
  -- Seats with an account.
  taken {int} not null check (taken >= 0),
  -- The domain of the addresses that may join.
  domain {text} check (domain <> ''),
  -- When the accounts close.
  accounts_end_ms {int},
  -- Of the code, never the code itself.
  hash {text} not null unique check (length(hash) = 64),
  by {text} not null check (by <> ''),
  created_ms {int} not null,
  ends_ms {int} not null,
  ended_ms {int},
  constraint seats_are_enough check (taken <= seats),
  constraint accounts_end_after_the_link check (accounts_end_ms >= ends_ms)
) {table};

-- Seats of links, and requests for one, which have no account yet. A request is deleted with its code.
create table link_seat (
  link {text} not null references link (id),
  -- The hash of the join id of a browser, or the address in lower case without `+suffix`. Of an erased person `erased:` and
  -- the id.
  joiner {text} not null check (joiner <> ''),
  -- Of the code in the mail, until it is used, and what was typed.
  hash {text} unique check (length(hash) = 64),
  name {text} check (name <> ''),
  email {text} check (email <> ''),
  -- Elapsed times: of the request, and of the end of its code.
  asked_ms {int} not null,
  ends_ms {int},
  account {text} unique references account (id),
  person {text} unique references person (id),
  joined_ms {int},
  primary key (link, joiner),
  constraint seat_is_complete check (
    case when account is null then person is null and joined_ms is null and hash is not null and email is not null
        and ends_ms is not null
      else person is not null and joined_ms is not null and hash is null and name is null and email is null
        and ends_ms is null end
  )
) {table};

create index link_seat_by_link on link_seat (link, account) where account is not null;
create index link_seat_waiting on link_seat (ends_ms) where account is null;

-- Requests that an operator has stopped. The process that answers a request looks for it here. Rows are deleted later.
create table stop_request (
  id {text} not null primary key check (id <> ''),
  by {text} not null check (by <> ''),
  at_ms {int} not null
) {table};

-- The last audit that was recorded: at most one row. Nothing decides by it.
create table audit_record (
  id {int} not null primary key check (id = 1),
  checked_ms {int} not null,
  journal_rows {int} not null check (journal_rows >= 0),
  -- The number of broken rules, and the first of them.
  problems {int} not null check (problems >= 0),
  first_problem {text},
  constraint problems_have_a_first check ((problems = 0) = (first_problem is null))
) {table};

-- Events for receivers outside (docs/operating/events.md). Commits write them with the rows that they are about. They are
-- deleted after 30 days.
create table event (
  -- The order of the events of an account. Numbers of different accounts can be committed in another order.
  number {sqlite}integer primary key{end}{postgres}bigint generated always as identity primary key{end},
  -- Random. Receivers know an event by it.
  id {text} not null check (id <> ''),
  -- Null: the event is about the service. `seq` is the number of the last fact of the account.
  account {text},
  seq {int},
  at_ms {int} not null,
  type {text} not null check (type <> ''),
  -- An object in JSON.
  data {text} not null,
  -- Names what has one event only.
  cause {text},
  -- Whether each endpoint has its row in `event_delivery`.
  queued {bool} not null default false check (queued in (false, true)),
  constraint account_has_a_number check ((account is null) = (seq is null))
) {sqlite}strict{end};

create index event_to_queue on event (number) where not queued;
create unique index event_by_cause on event (cause) where cause is not null;

-- What became of an event at each endpoint of the configuration. The oldest pending one of an account and endpoint is sent.
create table event_delivery (
  endpoint {text} not null check (endpoint <> ''),
  -- The event.
  number {int} not null,
  -- Empty: the event is about the service.
  account {text} not null,
  state {text} not null check (state in ('pending', 'delivered', 'skipped', 'dead')),
  attempts {int} not null check (attempts >= 0),
  -- Elapsed time of the next attempt. 0: none has failed since it is pending.
  next_ms {int} not null,
  -- Until this elapsed time, a process has it and sends it.
  claimed_ms {int} not null,
  -- The last attempt: its time, the status of the answer, and the beginning of its body or the error.
  tried_ms {int},
  status {int},
  answer {text},
  primary key (endpoint, number)
) {table};

create index event_delivery_by_account on event_delivery (account, endpoint, number);
create index event_delivery_pending on event_delivery (endpoint, account, number) where state = 'pending';
create index event_delivery_failing on event_delivery (endpoint, next_ms) where state = 'pending' and next_ms > 0;
create index event_delivery_dead on event_delivery (endpoint, number) where state = 'dead';

{postgres}
-- The processes that run on this database, and what each of them takes for agreed. No row here is needed by any
-- decision; one that nobody has refreshed for long belongs to a process that died.
create table node (
  id text collate "C" not null primary key check (id <> ''),
  version text collate "C" not null,
  started_ms bigint not null,
  seen_ms bigint not null,
  -- An object: what should be the same on all nodes, by name.
  agreement json not null
);

-- Rows that are written often have room beside them, so that a new version of one stays on its page and touches no index.
alter table account set (fillfactor = 50);
alter table api_key set (fillfactor = 50);
alter table clock set (fillfactor = 50);
alter table node set (fillfactor = 50);

-- Holds come and go all the time: what is gone is cleared away by its number, however large the table is.
alter table hold set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
{end}
