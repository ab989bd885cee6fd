-- Notes a step, $1 its name. No row inserted: the step was there already. Served by the primary key.
/* drainer:migrate */ INSERT INTO event_outbox_migrations (name) VALUES ($1) ON CONFLICT (name) DO NOTHING
