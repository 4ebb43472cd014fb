-- Journals are filtered by kind (src/store/journal.ts). Holds and settlements, which each request writes, are not in
-- this index.
create index journal_by_kind on journal (account, kind, seq) where kind not in ('hold', 'settle');
