-- The owner of an account. The ledger does not use it.
create table account_contact (
  account text not null primary key references account (id),
  owner text check (owner <> ''),
  email text check (email <> ''),
  note text check (note <> ''),
  -- The id of the account in another system.
  external_id text check (external_id <> '')
) strict, without rowid;

create unique index contact_by_external_id on account_contact (external_id) where external_id is not null;
