-- The cell's databases and whether we may read what their sessions do.
--
-- $1: names.
--
-- `readable`: a member of pg_read_all_stats (pg_monitor is one) reads every session. Without it we read the sessions
-- of roles whose rights we have, which is enough for databases of our own: their services log in as we do. Called once
-- a cell; unique index on datname.
SELECT
    d.oid,
    d.datname::text,
    pg_has_role('pg_read_all_stats', 'USAGE') OR pg_has_role(d.datdba, 'USAGE') AS readable,
    current_user::text
FROM pg_database AS d
WHERE d.datname = ANY ($1)
