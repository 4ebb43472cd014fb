-- Charges, summed by day (docs/decisions/0047-usage-sums.md). A charge has a number, in the order in which charges are
-- written, with the name that SQLite gives the number of each row. Several nodes write at once, so a smaller number can
-- be committed later. Numbers are on few pages of this index, which costs nearly nothing to keep.

alter table charge add column rowid bigint generated always as identity;

create index charge_by_rowid on charge using brin (rowid) with (pages_per_range = 32, autosummarize = on);

create table usage_day (
  -- Days since 1970, in UTC.
  day bigint not null,
  account text collate "C" not null,
  key text collate "C" not null,
  model text collate "C" not null,
  -- Late charges belong to requests that were counted before, and their tokens can be negative.
  requests bigint not null check (requests >= 0),
  late bigint not null check (late >= 0),
  prompt_tokens bigint not null,
  cached_tokens bigint not null,
  completion_tokens bigint not null,
  reasoning_tokens bigint not null,
  cost bigint not null check (cost >= 0),
  base bigint not null check (base >= 0),
  overage bigint not null check (overage >= 0),
  additional bigint not null check (additional >= 0),
  shortfall bigint not null check (shortfall >= 0),
  primary key (day, account, key, model),
  constraint cost_is_paid check (cost = base + overage + additional + shortfall)
);

create index usage_day_by_account on usage_day (account, day);

-- One row: the number of the last charge that was summed. It is locked by the node that sums.
create table usage_summed (
  id bigint primary key check (id = 1),
  through bigint not null check (through >= 0)
);

insert into usage_summed (id, through) values (1, 0);

-- Each time that days became final: the last of them, the last charge that was summed before, and the last acceptance
-- of a clock. Charges after that number count in later days.
create table usage_close (
  number bigint primary key check (number >= 1),
  through bigint not null check (through >= 0),
  day bigint not null,
  accepts bigint not null
);

create index usage_close_by_charge on usage_close (through, number, day);

create trigger usage_close_is_never_changed before update or delete on usage_close
  for each row execute function refuse('final days are never changed');
create trigger usage_close_is_never_emptied before truncate on usage_close
  for each statement execute function refuse('final days are never changed');

create function refuse_final_day() returns trigger language plpgsql as $$
begin
  if new.day <= (select day from usage_close order by number desc limit 1) then
    raise exception 'final days are never changed';
  end if;
  return new;
end $$;

create trigger usage_day_is_final before insert or update on usage_day
  for each row execute function refuse_final_day();
create trigger usage_day_is_never_deleted before delete on usage_day
  for each row execute function refuse('sums of usage are never deleted');
create trigger usage_day_is_never_emptied before truncate on usage_day
  for each statement execute function refuse('sums of usage are never deleted');
