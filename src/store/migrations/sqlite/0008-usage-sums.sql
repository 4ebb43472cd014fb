-- Charges, summed by day (docs/decisions/0047-usage-sums.md). Charges are numbered by their rowid: they are written one
-- after another and never deleted, so the numbers have no gaps and a copy of the file has the same.

create table usage_day (
  -- Days since 1970, in UTC.
  day integer not null,
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
  primary key (day, account, key, model),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall)
) strict, without rowid;

create index usage_day_by_account on usage_day (account, day);

-- One row: the number of the last charge that was summed.
create table usage_summed (
  id integer primary key check (id = 1),
  through integer not null check (through >= 0)
) strict;

insert into usage_summed (id, through) values (1, 0);

-- Each time that days became final: the last of them, the last charge that was summed before, and the last acceptance
-- of a clock. Charges after that number count in later days.
create table usage_close (
  number integer primary key check (number >= 1),
  through integer not null check (through >= 0),
  day integer not null,
  accepts integer not null
) strict;

create index usage_close_by_charge on usage_close (through, number, day);

create trigger usage_close_is_never_changed before update on usage_close
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_close_is_never_deleted before delete on usage_close
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_final_for_inserts before insert on usage_day
when new.day <= (select day from usage_close order by number desc limit 1)
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_final before update on usage_day
when old.day <= (select day from usage_close order by number desc limit 1)
begin select raise(abort, 'final days are never changed'); end;

create trigger usage_day_is_never_deleted before delete on usage_day
begin select raise(abort, 'sums of usage are never deleted'); end;
