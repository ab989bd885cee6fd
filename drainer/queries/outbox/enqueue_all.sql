-- Inserts many events in one round trip: a backlog, or a write that has several. Foreground work, tagged as such.
-- $1 ids, $2 the envelopes as JSON text in the same order.
-- Maintains the primary key and the partial index of what is unpublished.
/* outbox:enqueue */ INSERT INTO event_outbox (id, payload)
SELECT event.id, event.envelope::jsonb
  FROM unnest($1::uuid[], $2::text[]) AS event (id, envelope)
