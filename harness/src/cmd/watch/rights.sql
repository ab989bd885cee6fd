-- Whether we may read what other roles' sessions do, who we are, and which of the databases asked for are not there.
--
-- $1: names. Once, at the start.
SELECT
    pg_has_role('pg_read_all_stats', 'USAGE'),
    current_user::text,
    coalesce(
        (
            SELECT string_agg(quote_ident(asked.name), ', ')
            FROM unnest($1::text[]) AS asked (name)
            WHERE NOT EXISTS (SELECT FROM pg_database AS d WHERE d.datname = asked.name)
        ),
        ''
    )
