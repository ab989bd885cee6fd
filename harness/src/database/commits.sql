-- Commits of the cell's databases since their statistics began, and the sessions still in them but this one.
--
-- $1: names of the databases; $2: application_name of sessions that may stay, NULL for none; $3: part of the
-- application_name of sessions that count, NULL for all.
--
-- A backend hands in its counters at most once a second and when it exits, and leaves the activity only after that:
-- with no session left the count is final. Unique index on datname.
SELECT
    (SELECT sum(pg_stat_get_db_xact_commit(d.oid)) FROM pg_database AS d WHERE d.datname = ANY ($1))::bigint,
    (
        SELECT count(*)
        FROM pg_stat_get_activity(NULL) AS a
        JOIN pg_database AS d ON d.oid = a.datid
        WHERE d.datname = ANY ($1)
            AND a.pid <> pg_backend_pid()
            AND ($2 IS NULL OR a.application_name IS DISTINCT FROM $2)
            AND ($3 IS NULL OR strpos(a.application_name, $3) > 0)
    )
