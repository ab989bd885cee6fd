-- Reads no row: fails when the table or a column that this design needs is missing.
/* drainer:probe */ SELECT id, payload, enqueued_at, published_at, attempts, last_error, claimed_by, claimed_at
  FROM event_outbox
 LIMIT 0
