-- Lists of accounts are searched by prefix, and ordered by time and plan (docs/decisions/0048-lists-of-accounts.md).
-- None of these columns changes with a request, so requests still change no index.
create index account_by_time on account (created_ms, id);
create index account_by_plan on account ((plan collate "C"), id);
create index contact_by_email_prefix on account_contact (lower(email collate "C"));
create index contact_by_external_id_prefix on account_contact (lower(external_id collate "C"));
