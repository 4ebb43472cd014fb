-- The clock of the ledger (docs/operating/clock.md). One row: trusted time as it was recorded last, the clock at that moment,
-- and the time since the machine started. A new process compares its clock with it. A ledger from before continues at its
-- newest journal entry.

create table clock (
  id integer primary key check (id = 1),
  trusted_ms integer not null,
  clock_ms integer not null,
  is_trusted integer not null check (is_trusted in (0, 1)),
  boot_id text,
  boot_ms integer,
  accepts integer not null
) strict;

insert into clock
select 1, at_ms, at_ms, 1, null, null, 0
from (select coalesce((select at_ms from journal order by rowid desc limit 1), 0) as at_ms);

-- Clocks that an operator has accepted: who, the trusted time before, and the accepted time.
create table clock_accept (
  number integer primary key check (number >= 1),
  by text not null check (by <> ''),
  trusted_ms integer not null,
  clock_ms integer not null
) strict;

create trigger clock_accept_is_never_changed before update on clock_accept
begin select raise(abort, 'accepted clocks are never changed'); end;

create trigger clock_accept_is_never_deleted before delete on clock_accept
begin select raise(abort, 'accepted clocks are never deleted'); end;
