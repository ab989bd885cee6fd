-- Locks the oldest waiting rows until COMMIT. $1 how many. SKIP LOCKED keeps a second drainer off them.
-- Served by event_outbox_unpublished_idx: an ordered read of its head.
-- The lock lasts as long as the transaction, and that as long as every publish in it: the old design's flaw.
/* drainer:claim */ SELECT waiting.id, waiting.payload
  FROM event_outbox AS waiting
 WHERE waiting.published_at IS NULL
 ORDER BY waiting.enqueued_at
 LIMIT $1
   FOR UPDATE OF waiting SKIP LOCKED
