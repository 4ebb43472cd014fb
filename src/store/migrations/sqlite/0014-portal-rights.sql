-- What a key may do in the portal (docs/decisions/0054-the-portal.md). `own`: it sees itself. `account`: it manages all
-- keys of its account.

alter table api_key add column portal text not null default 'own' check (portal in ('own', 'account'));
