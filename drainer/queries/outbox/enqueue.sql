-- Inserts one event. Foreground work: its tag is not a drainer's, so that an observer blames the right one.
-- $1 id, $2 the envelope as JSON text. Parsed once, by the server; `text` first, so that the client needs no JSON type.
-- Maintains the primary key and the partial index of what is unpublished.
/* outbox:enqueue */ INSERT INTO event_outbox (id, payload) VALUES ($1, $2::text::jsonb)
