-- Every version of every plan, and the plans sections of the configuration that were applied. No row is ever changed: a
-- grant names the version that it came from.

create table plan_version (
  plan text not null check (plan <> ''),
  version integer not null check (version >= 1),
  created_ms integer not null,
  base_credits integer not null check (base_credits >= 0),
  base_every text not null,
  overage_credits integer not null check (overage_credits >= 0),
  overage_every text not null,
  requests_per_minute integer check (requests_per_minute > 0),
  tokens_per_minute integer check (tokens_per_minute > 0),
  concurrent integer check (concurrent > 0),
  -- A JSON array of model ids, or of "*".
  models text not null check (json_type(models) = 'array'),
  primary key (plan, version)
) strict, without rowid;

create table plan_file (
  epoch integer not null primary key check (epoch >= 1),
  fingerprint text not null check (length(fingerprint) = 64),
  applied_ms integer not null,
  -- A JSON array of the plans that accounts can be put on.
  plans text not null check (json_type(plans) = 'array')
) strict;

create trigger plan_version_is_never_changed before update on plan_version
begin select raise(abort, 'plan versions are never changed'); end;

create trigger plan_version_is_never_deleted before delete on plan_version
begin select raise(abort, 'plan versions are never deleted'); end;

create trigger plan_file_is_never_changed before update on plan_file
begin select raise(abort, 'applied plans sections are never changed'); end;

create trigger plan_file_is_never_deleted before delete on plan_file
begin select raise(abort, 'applied plans sections are never deleted'); end;
