-- One row: the audit that runs in a service now, and the last result. Nothing decides by this row.
create table audit_job (
  id integer not null primary key check (id = 1),
  -- The id of the running audit, and the time of its last sign of life.
  run text check (run <> ''),
  started_ms bigint,
  alive_ms bigint,
  -- The last audit that read all rows: its times, the number of broken rules, and its report in JSON.
  last_started_ms bigint,
  last_ended_ms bigint,
  problems integer check (problems >= 0),
  report text,
  -- An audit after that one which could not read all rows.
  failed_ms bigint,
  failure text
);

insert into audit_job (id) values (1);
