-- Counters of a service's outbox: dead tuples, updates, HOT updates.
--
-- NULL where the table is missing. The functions behind pg_stat_user_tables are read themselves: the view joins every
-- table with its indexes. `to_regclass` follows search_path, which is how services share one database. Once a second a
-- service; touches no table.
SELECT
    pg_stat_get_dead_tuples(t.oid),
    pg_stat_get_tuples_updated(t.oid),
    pg_stat_get_tuples_hot_updated(t.oid)
FROM (SELECT to_regclass('event_outbox')::oid AS oid) AS t
