-- The processes that run on this database, and what each of them takes for agreed. No row here is needed by any
-- decision; one that nobody has refreshed for long belongs to a process that died.

create table node (
  id text collate "C" not null primary key check (id <> ''),
  version text not null,
  started_ms bigint not null,
  seen_ms bigint not null,
  -- An object: what should be the same on all nodes, by name.
  agreement json not null
) with (fillfactor = 50);
