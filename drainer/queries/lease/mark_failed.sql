-- Counts one attempt of each failed row, keeps its reason and gives the claim back, as long as we still hold it.
-- $1 who claimed, $2 the ids, $3 the reasons in the same order, already bounded. One statement for all of them.
-- Served by the primary key, one probe an id.
/* drainer:mark */ UPDATE event_outbox AS held
   SET attempts = held.attempts + 1,
       last_error = failure.reason,
       claimed_by = NULL,
       claimed_at = NULL
  FROM unnest($2::uuid[], $3::text[]) AS failure (id, reason)
 WHERE held.claimed_by = $1
   AND held.id = failure.id
