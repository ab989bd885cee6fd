-- Gives claims back without blame: attempts and last_error stay as they are. $1 who claimed, $2 the ids.
-- Served by the primary key, one probe an id.
/* drainer:release */ UPDATE event_outbox AS held
   SET claimed_by = NULL,
       claimed_at = NULL
 WHERE held.claimed_by = $1
   AND held.id = ANY ($2)
