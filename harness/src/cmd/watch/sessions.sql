-- One tick of `watch`: what every client session but our own does, now.
--
-- $1: whether idle ones are wanted; $2: names of databases, none for all.
--
-- As the sampler's tick, and wider: the name of the database, and xid and xmin, which tell what a transaction holds
-- back. The statement travels as bytes, because another database's encoding may differ from ours. Sorted, so that one
-- tick's lines stand in the same order as the last one's. Unique index on pg_database's oid.
SELECT
    a.datid,
    a.pid,
    a.application_name,
    a.state,
    a.wait_event_type,
    a.wait_event,
    a.xact_start,
    a.state_change,
    clock_timestamp(),
    substring(textsend(a.query) FROM 1 FOR 4096),
    d.datname,
    a.backend_xid,
    a.backend_xmin
FROM pg_stat_get_activity(NULL) AS a
JOIN pg_database AS d ON d.oid = a.datid
WHERE
    a.pid <> pg_backend_pid()
    AND coalesce(a.backend_type, 'client backend') = 'client backend'
    AND ($1 OR coalesce(a.state, '') <> 'idle')
    AND (cardinality($2::text[]) = 0 OR d.datname = ANY ($2))
ORDER BY d.datname, a.pid
