-- Counts one attempt of one row and keeps the reason. $1 its id, $2 the reason, already bounded.
-- Served by the primary key.
/* drainer:mark */ UPDATE event_outbox SET attempts = attempts + 1, last_error = $2 WHERE id = $1
