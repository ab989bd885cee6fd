-- Marks what the broker confirmed, as long as we still hold it. $1 who claimed, $2 the ids.
-- Fewer rows than ids: the lease lapsed and somebody else took them.
-- Served by the primary key, one probe an id.
/* drainer:mark */ UPDATE event_outbox AS held
   SET published_at = CURRENT_TIMESTAMP,
       claimed_by = NULL,
       claimed_at = NULL
 WHERE held.claimed_by = $1
   AND held.id = ANY ($2)
