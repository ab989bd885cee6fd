-- What was applied. A table of our own: see outbox.rs.
/* drainer:migrate */ CREATE TABLE IF NOT EXISTS event_outbox_migrations (
    name       text        PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
)
