-- Requests that an operator has stopped. The process that answers a request looks for it here. Rows are deleted later.
create table stop_request (
  id text collate "C" not null primary key check (id <> ''),
  at_ms bigint not null
);
