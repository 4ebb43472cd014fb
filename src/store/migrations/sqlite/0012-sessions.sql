-- Sessions of the console, and codes that become one (docs/decisions/0050-sessions.md). A row has a hash of the secret
-- in the cookie or the link, and never the secret itself.

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
