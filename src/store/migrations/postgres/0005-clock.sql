-- The clock of the ledger (docs/operating/clock.md). One row: trusted time as it was recorded last, and the clock of this
-- server at that moment. A new node compares the clock with it. A ledger from before continues at the last heartbeat of a
-- node. The columns boot_id and boot_ms are used on SQLite only.

create table clock (
  id bigint not null primary key check (id = 1),
  trusted_ms bigint not null,
  clock_ms bigint not null,
  is_trusted boolean not null,
  boot_id text,
  boot_ms bigint,
  accepts bigint not null
) with (fillfactor = 50);

insert into clock
select 1, seen_ms, seen_ms, true, null, null, 0 from (select coalesce(max(seen_ms), 0) as seen_ms from node) n;

-- Clocks that an operator has accepted: who, the trusted time before, and the accepted time.
create table clock_accept (
  number bigint not null primary key check (number >= 1),
  by text not null check (by <> ''),
  trusted_ms bigint not null,
  clock_ms bigint not null
);

create trigger clock_accept_is_never_changed before update on clock_accept
  for each row execute function refuse('accepted clocks are never changed');
create trigger clock_accept_is_never_deleted before delete on clock_accept
  for each row execute function refuse('accepted clocks are never deleted');
create trigger clock_accept_is_never_emptied before truncate on clock_accept
  for each statement execute function refuse('accepted clocks are never deleted');
