-- Marks one row that the broker confirmed. $1 its id. One statement a row, as the old design had it.
-- Served by the primary key. The time is the transaction's start, which may be seconds before the confirm.
/* drainer:mark */ UPDATE event_outbox SET published_at = CURRENT_TIMESTAMP WHERE id = $1
