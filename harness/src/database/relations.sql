-- Size in bytes of the outbox, its indexes and its TOAST table (main fork), by name.
--
-- Once a cell and service, at the end. The TOAST table is named after an oid, so it gets a name that is equal in all
-- services. Serves no index of ours; catalogue lookups by oid.
SELECT
    CASE WHEN c.relkind = 't' THEN 'event_outbox (toast)' ELSE c.relname::text END,
    pg_relation_size(c.oid)
FROM pg_class AS o
JOIN pg_class AS c
    ON c.oid IN (o.oid, o.reltoastrelid)
    OR c.oid IN (SELECT i.indexrelid FROM pg_index AS i WHERE i.indrelid = o.oid)
WHERE o.oid = to_regclass('event_outbox')
