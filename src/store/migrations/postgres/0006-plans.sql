-- Every version of every plan, and the plans sections of the configuration that were applied. No row is ever changed: a
-- grant names the version that it came from.

create table plan_version (
  plan text collate "C" not null check (plan <> ''),
  version bigint not null check (version >= 1),
  created_ms bigint not null,
  base_credits bigint not null check (base_credits >= 0),
  base_every text not null,
  overage_credits bigint not null check (overage_credits >= 0),
  overage_every text not null,
  requests_per_minute bigint check (requests_per_minute > 0),
  tokens_per_minute bigint check (tokens_per_minute > 0),
  concurrent bigint check (concurrent > 0),
  -- Model ids, or "*".
  models text[] not null check (array_position(models, null) is null),
  primary key (plan, version)
);

create table plan_file (
  epoch bigint not null primary key check (epoch >= 1),
  fingerprint text collate "C" not null check (length(fingerprint) = 64),
  applied_ms bigint not null,
  -- The plans that accounts can be put on.
  plans text[] not null check (array_position(plans, null) is null)
);

create trigger plan_version_is_never_changed before update on plan_version
  for each row execute function refuse('plan versions are never changed');
create trigger plan_version_is_never_deleted before delete on plan_version
  for each row execute function refuse('plan versions are never deleted');
create trigger plan_version_is_never_emptied before truncate on plan_version
  for each statement execute function refuse('plan versions are never deleted');

create trigger plan_file_is_never_changed before update on plan_file
  for each row execute function refuse('applied plans sections are never changed');
create trigger plan_file_is_never_deleted before delete on plan_file
  for each row execute function refuse('applied plans sections are never deleted');
create trigger plan_file_is_never_emptied before truncate on plan_file
  for each statement execute function refuse('applied plans sections are never deleted');
